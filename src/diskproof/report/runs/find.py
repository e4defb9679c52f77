"""A study's runs on a host: those that failed with the last lines of what they left, and the
settings that were in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from diskproof.records import Cell, Check, Failure
from diskproof.report.chapter import Source
from diskproof.report.losses import read_slow_losses
from diskproof.report.tails import Tails, text_tails
from diskproof.stats.holm import holm_adjusted
from diskproof.stats.intervals import CONFIDENCE
from diskproof.stats.slow_losses import SlowLosses

MAX_TAILS = 50
"""Failed runs whose consoles are shown; the rest is listed with its reason."""


@dataclass(frozen=True)
class FailedRun:
    """A run that gave no result. ``tails`` are (name, last lines) of what it left behind."""

    run_id: str
    cell: Cell
    block: int
    failure: Failure
    tails: Tails = ()


@dataclass(frozen=True)
class StudyRuns:
    """Runs that gave no result, and by cell id the settings that were read back. ``hidden`` are
    workloads, by name, whose runs are missing where they were slow."""

    failures: tuple[FailedRun, ...] = ()
    checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    hidden: Mapping[str, SlowLosses] = field(default_factory=dict)


def find_runs(source: Source) -> StudyRuns:
    store, study, host = source.store, source.study, source.host
    failed = [run for run in store.failures(study.id) if run.host_id == host.id]
    shown = MAX_TAILS if source.details else 0
    failures = [
        FailedRun(
            run.id,
            run.cell,
            run.block,
            run.failure,
            text_tails(store.run(run.id).artefacts) if number < shown else (),
        )
        for number, run in enumerate(failed)
        if run.failure is not None
    ]
    checks = store.checks(study.id, host.id) if source.details else {}
    return StudyRuns(tuple(failures), checks, _find_hidden(source) if failures else {})


def _find_hidden(source: Source) -> Mapping[str, SlowLosses]:
    """Proved for all workloads together (Holm)."""
    if source.study.origin != "run":
        return {}
    runs = {run.id: run for run in source.store.runs(source.study.id)}
    found = {name: read_slow_losses(rows, runs) for name, rows in source.by_load.items()}
    known = {name: each for name, each in found.items() if each is not None}
    adjusted = holm_adjusted([each.p_value for each in known.values()])
    return {
        name: each
        for (name, each), p_value in zip(known.items(), adjusted, strict=True)
        if p_value <= 1 - CONFIDENCE
    }
