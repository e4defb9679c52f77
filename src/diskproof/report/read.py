"""Views from a store: what the tables need, and with ``details`` what the page needs as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diskproof.errors import UsageError
from diskproof.records import Histogram, HostRecord, Series, StudyRecord
from diskproof.report.analysis import analyse_study
from diskproof.report.durability import join_verdicts
from diskproof.report.grid_page import load_grids
from diskproof.report.protocol_views import read_protocol
from diskproof.report.scores import score_rows
from diskproof.report.tails import text_tails
from diskproof.report.tile_analysis import analyse_stored
from diskproof.report.view import (
    FailedRun,
    StudyView,
    WorkloadDetail,
    WorkloadView,
    chosen_lines,
    median_run,
    rank_workloads,
    with_durability,
)
from diskproof.stats.study_race import RaceState, race_rules, replay_races
from diskproof.store.race_scores import race_scores

if TYPE_CHECKING:
    from diskproof.store import Store, VerdictRow

MAX_TAILS = 50
"""Failed runs whose consoles are shown; the rest is listed with its reason."""

_NOBODY = HostRecord("", "no host yet", {})


def read_views(
    store: Store, wanted: Sequence[str] = (), *, details: bool = False
) -> tuple[StudyView, ...]:
    """A view for each study (all, or those of these names or ids) and host it ran on.

    Raises UsageError for a study that the store does not hold.
    """
    studies = store.studies()
    for name in wanted:
        if not any(name in (study.id, study.name) for study in studies):
            held = ", ".join(dict.fromkeys(study.name for study in studies)) or "no study"
            raise UsageError(f"no study {name!r} in {store.place}", f"it holds {held}")
    chosen = [study for study in studies if not wanted or {study.id, study.name} & set(wanted)]
    hosts = {host.id: host for host in store.hosts()}
    verdicts = store.verdicts()
    views = (_views(store, study, hosts, verdicts) for study in chosen)
    found = (view for of_study in views for view in of_study)
    return tuple(_with_details(store, view) if details else view for view in found)


def _views(
    store: Store,
    study: StudyRecord,
    hosts: Mapping[str, HostRecord],
    verdicts: Sequence[VerdictRow],
) -> list[StudyView]:
    rows = store.results(study.id)
    failures = store.failures(study.id)
    own = [row for row in verdicts if row.study_id == study.id]
    tiles = store.tile_runs(study.id)
    measured = dict.fromkeys([row.host_id for row in rows] + [run.host_id for run in failures])
    ids = measured | dict.fromkeys([row.host_id for row in own] + [run.host_id for run in tiles])
    races, joined = _races(store, study), join_verdicts(verdicts)
    views = []
    for host in [hosts[host_id] for host_id in ids] or [_NOBODY]:
        loads = rank_workloads(study, [row for row in rows if row.host_id == host.id])
        failed = tuple(
            FailedRun(run.id, run.cell, run.block, run.failure)
            for run in failures
            if run.host_id == host.id and run.failure is not None
        )
        loads = tuple(with_durability(load, joined) for load in loads)
        of_host = tuple(row for row in own if row.host_id == host.id)
        loaded = tuple(run for run in tiles if run.host_id == host.id)
        shared = StudyView(study, host, loads, failed, races=races, verdicts=of_host)
        views.append(replace(shared, tile_runs=loaded))
    return views


def _races(store: Store, study: StudyRecord) -> dict[str, RaceState]:
    """The races of a study by workload, replayed from its runs; on however many hosts they were
    made, a race is one."""
    if race_rules(study) is None:
        return {}
    return {race.workload: race for race in replay_races(study, race_scores(store, study.id))}


def _with_details(store: Store, view: StudyView) -> StudyView:
    study, host = view.study, view.host
    failures = tuple(
        replace(each, tails=text_tails(store.run(each.run_id).artefacts))
        if number < MAX_TAILS
        else each
        for number, each in enumerate(view.failures)
    )
    details = {load.name: _detail(store, view, load) for load in view.workloads}
    checks = store.checks(study.id, host.id)
    rows = [row for row in store.results(study.id) if row.host_id == host.id]
    primary = [row for row in rows if row.primary]
    analyses = {load.name: load for load in analyse_study(store, study, primary)}
    return replace(
        view,
        failures=failures,
        checks=checks,
        details=details,
        analyses=analyses,
        grids={load.name: load_grids(load, rows) for load in view.workloads},
        protocols={load.name: read_protocol(store, load, rows) for load in view.workloads},
        scores=score_rows(primary, {}, blocked=study.origin == "run"),
        tiles=analyse_stored(store, study, host, view.tile_runs),
    )


def _detail(store: Store, view: StudyView, load: WorkloadView) -> WorkloadDetail:
    lines = chosen_lines(load)
    curves: dict[str, list[tuple[str, Histogram]]] = {}
    traces: dict[str, list[tuple[str, Series]]] = {}
    for line in lines:
        for histogram in store.histograms(view.study.id, line.ranked.cell.id, view.host.id):
            curves.setdefault(histogram.name, []).append((line.label, histogram))
        for series in store.series_of(median_run(line)):
            if len(series.times) > 1:
                traces.setdefault(series.name, []).append((line.label, series))
    return WorkloadDetail(
        {name: tuple(each) for name, each in curves.items()},
        {name: tuple(each) for name, each in traces.items()},
    )
