"""How far studies are, seen from any terminal."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from diskproof.records import StudyRecord
from diskproof.report import layout
from diskproof.store import Progress, RunCounts
from diskproof.units import render_seconds

State = Literal["done", "running", "incomplete", "imported"]


@dataclass(frozen=True)
class StudyStatus:
    """One study. ``before`` counts the runs of blocks that are planned no more, which ``done`` has
    too. ``eta_seconds`` is from now on; the last five are known while it runs.

    ``updated`` is the Unix time of the last word from who runs it.
    """

    study: str
    id: str
    state: State
    done: int
    failed: int
    total: int
    before: int = 0
    current: str = ""
    eta_seconds: float | None = None
    host: str = ""
    pid: int = 0
    updated: float = 0.0


def study_status(
    study: StudyRecord,
    counts: RunCounts,
    running: Progress | None,
    now: float,
    *,
    race_over: bool = False,
) -> StudyStatus:
    """The status of one study; ``running`` is the word of a living process that measures it.

    A race knows its total only when it is over; until then it is what no cell's leaving leaves.
    """
    done = counts.ok + counts.failed
    if running is None:
        if study.origin not in ("run", "program"):  # what was planned elsewhere is not known
            return StudyStatus(study.name, study.id, "imported", done, counts.failed, done)
        over = race_over or done >= counts.planned
        total = done if race_over else counts.planned
        state: State = "done" if over else "incomplete"
        more = max(0, done - total)
        return StudyStatus(study.name, study.id, state, done, counts.failed, total, more)
    eta = running.eta_seconds
    left = None if eta is None else max(0.0, eta - (now - running.updated))
    return StudyStatus(
        study.name,
        study.id,
        "running",
        running.done,
        running.failed,
        running.total,
        0,
        running.current,
        left,
        running.host,
        running.pid,
        running.updated,
    )


def status_json(found: Sequence[StudyStatus]) -> list[dict[str, object]]:
    return [asdict(each) for each in found]


def render_status(found: Sequence[StudyStatus]) -> layout.Shown:
    """A line a study, and a second one for what runs now."""
    table = layout.start_table("studies", "-study", "!id", "!state", "-runs", ">failed", "*now")
    for each in found:
        table.add_row(each.study, each.id, each.state, _runs(each), str(each.failed), _now(each))
    return table


def _runs(each: StudyStatus) -> str:
    if each.before:
        return f"{each.done} of {each.total} planned ({each.before} more from before)"
    return f"{each.done}/{each.total}"


def _now(each: StudyStatus) -> str:
    if each.state != "running":
        return ""
    parts = [each.current]
    if each.eta_seconds is not None:
        parts.append(f"about {render_seconds(each.eta_seconds)} left")
    silent = time.time() - each.updated
    parts += [f"no word for {render_seconds(silent)}"] if silent > 60 else []
    return ", ".join([*parts, f"process {each.pid} on {each.host}"])
