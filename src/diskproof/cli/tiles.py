"""``diskproof tiles``: the groups of guests that a study starts on this host, and its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from diskproof.backings import Consent
from diskproof.cli.conduct import make_setup, study_record
from diskproof.cli.terminal import console, note, print_json
from diskproof.cli.watch import Words, failure_lines
from diskproof.guest.ours.boot_states import find_state_folder, start_boot_states
from diskproof.guest.ours.build import build_guest
from diskproof.host.facts import probe_facts
from diskproof.host.memory import read_available_bytes
from diskproof.lab.course import Outcome
from diskproof.lab.setup import hosts_here
from diskproof.plan import TilePlan, make_tile_plan
from diskproof.plan.tile_costs import TileCosts, tile_memory
from diskproof.plan.tiles import tile_rules
from diskproof.records import HostFacts, HostRecord
from diskproof.records.tiles import TileRun
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.tiles.find import analyse_tiles
from diskproof.report.tiles.plan import TilePlanView
from diskproof.report.tiles.table import render_tiles, tiles_json
from diskproof.store import Store
from diskproof.study.like import find_defaults, keep_warnings
from diskproof.study.load import Study
from diskproof.tiles.next import Carried, TileCampaign, TileJob, add_past_runs
from diskproof.tiles.run import TileLab
from diskproof.units import render_seconds


@contextmanager
def start_tiles(study: Study, consent: Consent, page: str, store: Store) -> Iterator[TileWords]:
    """A study ready for its tiles to be started; ``page`` is the command that reports them."""
    facts = probe_tile_host(study, consent)
    plan = plan_tiles(study, facts)
    for each in plan.dropped:
        note(f"left out, {each.count} of the cells: {each.reason}")
    for default in find_defaults(plan.warnings):
        note(default.sentence)
    warnings = keep_warnings(plan.warnings)
    for text in warnings:
        note(f"warning: {text}")
    told = tuple(text for text in plan.warnings if text not in warnings)
    setup = make_setup(study, facts, consent, store)
    here = _find_host(store, study.id, setup.host_id)
    with start_boot_states(find_state_folder()) as states:
        campaign = TileCampaign(
            study_record(study, told=told),
            plan.cells,
            plan.rules,
            TileLab(setup, plan.rules, states).execute,
            store,
            host_id=here.id,
            cpus=facts.cpus,
        )
        yield TileWords(campaign, here, page)


def probe_tile_host(study: Study, consent: Consent) -> HostFacts:
    """What this host can do; builds the guests of the study's tile where they are missing.

    Raises HostError when they cannot be built: there is nothing else to run tiles in.
    """
    tile = tile_rules(study).tile
    for root in sorted({"", *(guest.root for guest in tile.guests)}):  # "" also probes KVM
        build_guest(note, root)
    return probe_facts(study.backings, consent, guest=True, progress=note)


def plan_tiles(study: Study, facts: HostFacts) -> TilePlan:
    """The tile cells of a study on a host with the memory it has free now."""
    return make_tile_plan(study, facts, read_available_bytes())


def view_tile_plan(study: Study, consent: Consent, store: Store | None = None) -> TilePlanView:
    """A study's tiles on this host, for ``diskproof plan``; ``store`` knows what runs took."""
    facts = probe_tile_host(study, consent)
    made = plan_tiles(study, facts)
    costs = TileCosts(made.rules, facts.cpus)
    if store:
        add_past_runs(costs, store, hosts_here(store), made.cells[0].workload)
    seconds = sum(map(costs.expect_cell, made.cells))
    return TilePlanView(
        study=study.name,
        rules=made.rules,
        cells=made.cells,
        dropped=made.dropped,
        warnings=made.warnings,
        runs=made.runs,
        seconds=seconds,
        phases=costs.expect_phases(seconds),
        disk_bytes=made.needed_bytes,
        memory_bytes=max(tile_memory(made.rules.tile, c.level("accel")) for c in made.cells),
    )


def _find_host(store: Store, study_id: str, host_id: str) -> HostRecord:
    """This host. Says which stored runs of the study count for nothing here."""
    hosts = {host.id: host for host in store.hosts()}
    here = hosts[host_id]
    counts = Counter(run.host_id for run in store.tile_runs(study_id))
    for other in (hosts[each] for each in counts if each != host_id):
        known = sorted({*other.facts, *here.facts})
        changed = [key for key in known if other.facts.get(key) != here.facts.get(key)]
        was = ", ".join(f"{key} was {other.facts.get(key)}" for key in changed)
        whose = f"this host, when {was}," if other.name == here.name else other.name
        note(f"stored runs of {whose} do not count here: {counts[other.id]}")
    return here


class TileWords(Words[TileJob, TileRun, Carried]):
    """A log hears when a run begins, for it may take an hour; what each cell carries is shown."""

    def __init__(self, campaign: TileCampaign, host: HostRecord, page: str) -> None:
        self.campaign: TileCampaign = campaign
        self.host, self.page = host, page
        self.cells, self.rules = campaign.search.cells, campaign.search.rules
        self.factors = varying_factors(self.cells.values()) or ("cache",)

    def label(self, job: TileJob) -> str:
        return f"{self._size(job)}, run {job.repeat}"

    def _size(self, job: TileJob) -> str:
        guests = job.tiles * len(self.rules.tile.guests)
        label = cell_label(job.cell, self.factors)
        return f"{label}  {count_tiles(job.tiles)}, {guests} guests"

    def starting(self, job: TileJob) -> Sequence[str]:
        return [f"  now: {self._size(job)}: starting"]

    def line(self, run: TileRun) -> str:
        head = f"{cell_label(run.cell, self.factors)}  {count_tiles(run.tiles)}, run {run.repeat}"
        if run.failure is not None:
            return failure_lines(head, run.failure, more=3)
        return f"{head}  load {render_seconds(run.seconds)}"

    def news(self, news: Carried) -> Sequence[str]:
        return [f"  {cell_label(news.cell, self.factors)} {carried_text(news)}"]

    def rows(self) -> Sequence[tuple[str, str]]:
        known = self.campaign.carried.values()
        return [
            (f"{cell_label(each.cell, self.factors)}: {carried_text(each)}", "green")
            for each in known
        ]

    def print_results(self, as_json: bool) -> None:
        """What this host's runs of these cells tell."""
        study, store = self.campaign.study, self.campaign.store
        every = [run for run in store.tile_runs(study.id) if run.host_id == self.host.id]
        runs = [run for run in every if run.cell.id in self.cells]
        views = []
        if runs:
            series = {run.id: store.tile_series_of(run.id) for run in runs if run.failure is None}
            views.append(analyse_tiles(study, self.host, runs, series))
        if as_json:
            print_json(tiles_json(views))
            return
        for view in views:
            console().print(render_tiles(view))

    def closing(self, outcome: Outcome, resume: str) -> Sequence[str]:
        return [f"the page with all of it: {self.page}"] if outcome.standing.done else ()


def count_tiles(tiles: int) -> str:
    """``1 tile``, ``3 tiles``."""
    return f"{tiles} tile{'s' * (tiles != 1)}"


def carried_text(known: Carried) -> str:
    """``carries 2 tiles (2 held, 3 did not)``, or how far a search is."""
    capacity = known.capacity
    so_far = "" if capacity.decided else "so far "
    return f"carries {count_tiles(capacity.tiles)} {so_far}({capacity.reason})"
