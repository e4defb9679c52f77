"""A study's runs on a host: those that failed with the last lines of what they left, and the
settings that were in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from diskproof.records import Artefact, Cell, Check, Failure
from diskproof.report.chapter import Source

MAX_TAILS = 50
"""Failed runs whose consoles are shown; the rest is listed with its reason."""
MAX_TAILS_A_RUN = 60
_LINES = 40
_CHARS = 4000

Tails = tuple[tuple[str, str], ...]


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
    """Runs that gave no result, and by cell id the settings that were read back."""

    failures: tuple[FailedRun, ...] = ()
    checks: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)


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
    return StudyRuns(tuple(failures), checks)


def text_tails(artefacts: Iterable[Artefact]) -> Tails:
    """(name, last lines) of the files that are text and not empty."""
    found = (
        (artefact.name, tail)
        for artefact in artefacts
        if artefact.media_type.startswith("text/") and (tail := _tail(artefact))
    )
    return tuple(tail for _, tail in zip(range(MAX_TAILS_A_RUN), found, strict=False))


def _tail(artefact: Artefact) -> str:
    text = artefact.content[-4 * _CHARS :].decode("utf-8", "replace").strip()
    return "\n".join(text.splitlines()[-_LINES:])[-_CHARS:]
