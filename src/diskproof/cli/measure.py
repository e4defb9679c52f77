"""``diskproof run``: the study's plan on this host, and its words."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from diskproof.backings import Consent
from diskproof.cli.advise_verb import name_files
from diskproof.cli.changed import tell_of_changes
from diskproof.cli.conduct import ensure_guest_for, make_setup, probe_host, study_record
from diskproof.cli.terminal import console, print_json
from diskproof.cli.watch import Words, failure_lines
from diskproof.lab.course import Outcome
from diskproof.measure.next import Best, MeasureCampaign
from diskproof.measure.run import start_lab
from diskproof.plan import estimate, make_plan
from diskproof.plan.estimate import Estimate
from diskproof.plan.history import LOAD, History
from diskproof.plan.schedule import make_schedule
from diskproof.records import Cell, HostFacts, PlannedRun, RunRecord, StudyRecord
from diskproof.records.metrics import figure_unit
from diskproof.report.barred import Bars, is_unfit, marked
from diskproof.report.labels import cell_label, render_figure, varying_factors
from diskproof.report.race.words import drop_sentence, verdict_sentence
from diskproof.report.read import read_views
from diskproof.report.study_tables import render_study
from diskproof.stats.study_race import RaceState
from diskproof.store import Store
from diskproof.store.show import show_rows
from diskproof.study.load import Study
from diskproof.units import render_seconds

WORTH_A_WORD = 0.15
"""Share of a run that a phase beside the load takes before the run's line names it."""


def plan_here(
    study: Study, consent: Consent, history: History | None = None
) -> tuple[StudyRecord, Estimate, HostFacts]:
    """The study with its plan on this host, what it will take (by what runs took here, and by what
    this process took to come so far), and what was probed of the host."""
    began = time.monotonic()
    ensure_guest_for(study)
    building = time.monotonic() - began
    facts = probe_host(study, consent)
    age = read_age() - building
    made = make_plan(study, facts)
    blocks = study.race.most_runs(1) if study.race else study.blocks
    return study_record(study, made), estimate(made, blocks, history, age), facts


def read_age() -> float:
    """Seconds since this process began: psutil knows them to the second only."""
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(began) / os.sysconf("SC_CLK_TCK")


@contextmanager
def start_measuring(study: Study, consent: Consent, store: Store) -> Iterator[MeasureWords]:
    """A study ready to be measured."""
    tell_of_changes(study, store)
    record, cost, facts = plan_here(study, consent)
    if cost.obstacle:
        raise cost.obstacle
    schedule = make_schedule(record.cells, study.blocks, study.seed)
    with start_lab(make_setup(study, facts, consent, store)) as lab:
        yield MeasureWords(MeasureCampaign(record, schedule, lab.execute, store))


class MeasureWords(Words[PlannedRun, RunRecord, RaceState]):
    """Races and the best cells are shown; of thousands of runs only those that failed scroll."""

    scrolls = False

    def __init__(self, campaign: MeasureCampaign) -> None:
        self.campaign: MeasureCampaign = campaign
        self.factors = varying_factors(campaign.study.cells)
        self.bars = Bars(campaign.study)

    def label(self, job: PlannedRun) -> str:
        block = f"block {job.block + 1}/{self.campaign.study.blocks}"
        return f"{job.cell.workload.name}  {self._named(job.cell)}  {block}"

    def _named(self, cell: Cell) -> str:
        return marked(cell_label(cell, self.factors), cell, self.bars)

    def line(self, run: RunRecord) -> str:
        label = self._named(run.cell)
        where = f"block {run.block + 1}  {run.cell.workload.name}  {label}"
        if run.failure is not None:
            return failure_lines(where, run.failure, more=0)
        figures = [
            f"{render_figure(metric.value)} {figure_unit(metric.name, metric.unit)}"
            for metric in run.metrics
            if metric.primary
        ]
        return f"{where}  {', '.join(figures)}"

    def took(self, run: RunRecord, seconds: float) -> str:
        """With the parts that are not the load, where they are worth a word."""
        long = [
            f"{name.replace('_', ' ')} {render_seconds(part)}"
            for name, part in run.phases
            if name != LOAD and part >= max(1.0, WORTH_A_WORD * seconds)
        ]
        return super().took(run, seconds) + (f" ({', '.join(long)})" if long else "")

    def news(self, news: RaceState) -> Sequence[str]:
        """Who left the race after a block, and why; then where it stands."""
        verdict, study = news.verdict, self.campaign.study
        assert verdict is not None, "a block was judged"
        told = [f"out: {drop_sentence(news, drop, study)}" for drop in verdict.dropped]
        return [*told, f"{race_count(news)}; {verdict_sentence(news, study)}"]

    def rows(self) -> Sequence[tuple[str, str]]:
        races = [(race_count(race), "cyan") for race in self.campaign.races]
        return [*races, *((self._best(best), "green") for best in self.campaign.best.values())]

    def _best(self, best: Best) -> str:
        figure = f"{render_figure(best.mean)} {figure_unit(best.metric, best.unit)}"
        label = cell_label(best.cell, self.factors)
        label += " (drops flushes)" * is_unfit(best.cell, self.bars)
        runs = "run" if best.runs == 1 else "runs"
        return f"best so far, {best.cell.workload.name}: {label}  {figure} ({best.runs} {runs})"

    def print_results(self, as_json: bool) -> None:
        store, study = self.campaign.store, self.campaign.study
        if as_json:
            results = store.results(study.id)
            print_json(show_rows(results, store.figures(results), store.studies()))
            return
        for view in name_files(read_views(store, [study.id])):
            console().print(render_study(view))

    def closing(self, outcome: Outcome, resume: str) -> Sequence[str]:
        undecided = [r for r in self.campaign.races if r.course.over and not r.course.settled]
        if outcome.reason != "done" or not undecided:
            return ()
        if undecided[0].rules.likely:
            return ["diskproof: a race has cost what measuring everything would, and stays open"]
        what = "a race is out of blocks; raise max_blocks, then go on with"
        return [f"diskproof: {what}: {resume}"]


def race_count(race: RaceState) -> str:
    """How many cells of a workload are still in its race."""
    if race.course.over:
        found = "likely enough" if race.rules.likely else "decided"
        return f"{race.workload}: {found if race.course.settled else 'undecided'}"
    resting = f", {race.resting} resting" if race.resting else ""
    return f"{race.workload}: {race.racing} of {len(race.cells)} cells still in the race{resting}"
