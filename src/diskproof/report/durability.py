"""Durability beside speed: which verdicts are about the disk of a measured cell.

A verdict is made of a crash cell, a speed of a measured one, often in another study. Both are
about the same disk when they agree in the levels that decide what reaches the host's file, when
and in which order. The accelerator, the guest's size, the iothread, the place of the image and
the sizes of clusters and caches do not decide that, and are not compared.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from diskproof.records import Cell
from diskproof.records.causes import find_causes
from diskproof.records.verdicts import (
    COVERED,
    FAULTS,
    PROFILES,
    CrashRun,
    Fault,
    TraceEvent,
    Verdict,
    VerdictRow,
)
from diskproof.report.crash.cause_table import causes_json
from diskproof.report.crash.profiles import doubt_text
from diskproof.report.labels import count
from diskproof.report.outputs import CrashCellJson, VerdictJson
from diskproof.study.crash import BESIDE, CrashRules
from diskproof.study.factors import FACTORS
from diskproof.units import render_bytes

DECIDING = frozenset(factor.name for factor in FACTORS if factor.decides)
"""The factors that a verdict and a speed must agree in."""


@dataclass(frozen=True)
class CellDurability:
    """The worst verdict of each fault over all writers, by fault."""

    by_fault: Mapping[Fault, VerdictRow]

    @property
    def worst(self) -> VerdictRow | None:
        """The worst of the faults that settings are responsible for."""
        rows = (row for row in self.by_fault.values() if row.verdict.counts)
        return max(rows, key=_badness, default=None)


Levels = tuple[tuple[str, str], ...]


def _badness(row: VerdictRow) -> tuple[int, int, float]:
    return row.verdict.badness


def deciding_levels(cell: Cell) -> Levels:
    """The levels by which cells and verdicts are joined."""
    return tuple((name, level) for name, level in cell.levels if name in DECIDING)


def join_verdicts(rows: Sequence[VerdictRow]) -> dict[Levels, CellDurability]:
    """Verdicts by the levels they are about. Of several the worst counts: a loss that was once
    found stays found, and no writer's ``keeps`` hides what is undecided of another. What is known
    of the same writer, from a longer search say, does answer it."""
    answered = {_question(row) for row in rows if row.verdict.verdict != "undecided"}
    found: dict[Levels, dict[Fault, VerdictRow]] = {}
    for row in rows:
        if row.verdict.verdict == "undecided" and _question(row) in answered:
            continue
        by_fault = found.setdefault(deciding_levels(row.cell), {})
        known = by_fault.setdefault(row.verdict.fault, row)
        by_fault[row.verdict.fault] = max(known, row, key=_badness)
    return {
        levels: CellDurability({fault: found_[fault] for fault in FAULTS if fault in found_})
        for levels, found_ in found.items()
    }


def _question(row: VerdictRow) -> tuple[Levels, str, Fault]:
    asked = f"{row.cell.workload.name} {row.cell.level(BESIDE)}"
    return deciding_levels(row.cell), asked, row.verdict.fault


def writes(cell: Cell) -> bool:
    """Whether a cell's load writes, as far as its options tell; a user's own job may."""
    return cell.workload.option("rw", "write") not in ("read", "randread")


# -- words ----------------------------------------------------------------------------------


def verdict_text(verdict: Verdict) -> str:
    """A verdict in a table that has the states beside it: ``keeps``, ``kept so far``,
    ``loses 12, 1.3 s``, ``corrupts``, ``undecided``."""
    if verdict.kept_so_far:
        return "kept so far"
    if verdict.verdict == "loses":
        return f"loses {verdict.lost}, {render_age(verdict.age_seconds)}"
    if verdict.verdict == "corrupts" and verdict.lost:
        return f"corrupts, loses {verdict.lost}"
    return verdict.verdict


def shared_text(verdict: Verdict) -> str:
    """A verdict with what stands behind it: ``keeps, all 6,140``, ``keeps, 900 of about 14,849``,
    ``kept so far (2 of about 1,135)``; a loss is proved by one state."""
    if verdict.kept_so_far:
        return f"kept so far ({states_text(verdict)})"
    if verdict.verdict != "keeps":
        return verdict_text(verdict)
    checked, total = verdict.states_checked, verdict.states_total
    whole = not verdict.estimated and checked == total
    return f"keeps, all {checked:,}" if whole else f"keeps, {states_text(verdict)}"


def share_text(verdict: Verdict) -> str:
    """What stands behind a verdict, short enough for a picture: ``all 6,140``, ``2 of ~1,135``."""
    text = shared_text(verdict).partition(", ")[2] or states_text(verdict)
    return text.replace("about ", "~")


def loss_text(verdict: Verdict) -> str:
    """``loses 64 acknowledged writes``, ``cannot be used afterwards``."""
    lost = f"loses {count(verdict.lost, 'acknowledged write')}"
    if verdict.verdict == "corrupts":
        return f"{lost} and is corrupt" if verdict.lost else "is corrupt"
    return lost


def run_text(run: CrashRun) -> str:
    """All verdicts of a run in one line."""
    return ", ".join(f"{each.fault}: {shared_text(each)}" for each in run.verdicts)


def profiles_text(verdicts: Sequence[Verdict]) -> str:
    """What a power cut leaves by POSIX and on each file system: ``a power cut, by the rules of
    posix: corrupts; ext4, xfs: keeps; btrfs: loses 1``. Empty without profiles."""
    by_fault = {each.fault: each for each in verdicts}
    named = {"posix": by_fault.get("power")}
    named |= {name: by_fault.get(fault) for name, fault in PROFILES.items()}
    alike: dict[str, list[str]] = {}
    for name, verdict in named.items():
        if verdict is not None:
            word = "kept so far" if verdict.kept_so_far else verdict.verdict
            lost = f" {verdict.lost:,}" if verdict.verdict == "loses" else ""
            alike.setdefault(word + lost, []).append(name)
    if not any(name in PROFILES for names in alike.values() for name in names):
        return ""
    told = "; ".join(f"{', '.join(names)}: {text}" for text, names in alike.items())
    losing = {name: verdict.is_broken for name, verdict in named.items() if verdict}
    return f"a power cut, by the rules of {told}{doubt_text(losing)}"


def render_age(seconds: float) -> str:
    """How old the oldest lost acknowledgement was: ``<1 ms``, ``12 ms``, ``1.3 s``, ``140 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def states_text(verdict: Verdict) -> str:
    """How many states the verdict rests on: ``120 of 120``, ``2000 of about 3e+06``, ``57 of ?``
    where there may be more and nobody knows how many."""
    checked, total = f"{verdict.states_checked:,}", verdict.states_total
    if total is None or (verdict.estimated and total <= verdict.states_checked):
        return f"{checked} of ?"
    about = f"{float(total):.1g}" if total > 999_999 else f"{total:,}"
    return f"{checked} of {'about ' if verdict.estimated else ''}{about}"


def states_checked(verdict: Verdict) -> str:
    """How many states of how many; where nobody knows of how many, that is said."""
    checked, _, total = states_text(verdict).partition(" of ")
    if total == "?":
        return f"{checked} states were checked, and how many there are is not known"
    return f"{checked} of {total} states were checked"


class VerdictText(NamedTuple):
    """A verdict as tables tell it."""

    text: str
    states: str
    reason: str
    is_broken: bool
    style: str
    shape: str

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        told = verdict_text(verdict), states_text(verdict), verdict.reason, verdict.is_broken
        return cls(*told, *_mark(verdict))


def short_text(durability: CellDurability | None) -> str:
    """The column beside the speed: the worst verdict and its share, ``-`` where there is none."""
    worst = durability.worst if durability else None
    return shared_text(worst.verdict) if worst else "-"


VERDICT_SHAPES = {
    "keeps": "\u25cf",
    "undecided": "\u25c7",
    "loses": "\u25bc",
    "corrupts": "\u2716",
}
"""A shape for each word, so that no verdict is told by its colour alone."""


def verdict_mark(durability: CellDurability | None) -> tuple[str, str]:
    """The style of a page and the shape of the verdict beside a speed; empty without one."""
    worst = durability.worst.verdict if durability and durability.worst else None
    return _mark(worst) if worst else ("", "")


def _mark(verdict: Verdict) -> tuple[str, str]:
    return f"verdict-{verdict.verdict}", VERDICT_SHAPES[verdict.verdict]


def is_lossy(durability: CellDurability | None) -> bool:
    """Whether a crash that a setting answers for was seen to lose or corrupt something."""
    worst = durability.worst if durability else None
    return worst is not None and worst.verdict.is_broken


def durability_sentence(rows: Sequence[VerdictRow]) -> str:
    """How many crash cells keep their promises under the faults that a setting can be good
    against, and how many do not. Empty without verdicts."""
    cells: dict[str, list[VerdictRow]] = {}
    for row in rows:
        if row.verdict.counts:
            cells.setdefault(row.cell.id, []).append(row)
    worst = [max(each, key=_badness).verdict for each in cells.values()]
    kept = sum(verdict.verdict == "keeps" for verdict in worst)
    bad = sum(verdict.is_broken for verdict in worst)
    if not cells:
        return ""
    told = [
        f"{kept} of {len(cells)} crash cells kept all acknowledged writes in every state checked"
    ]
    told += [f"{bad} lost or corrupted some"] if bad else []
    so_far = sum(verdict.kept_so_far for verdict in worst)
    told += [f"{so_far} kept them so far, in too few states to decide"] if so_far else []
    left = len(cells) - kept - bad - so_far
    told += [f"of {left} it is not decided"] if left else []
    return "; ".join(told) + "."


class Looked(NamedTuple):
    """So many were looked at of a ``kind`` of states: ``acknowledgements``, ``changes`` (see
    ``Coverage``) or all ``states``."""

    kind: str
    done: int
    of: int


def find_looked(verdict: Verdict) -> Iterator[Looked]:
    """What a search looked at, where it is known how many there are."""
    covered = verdict.details.get(COVERED)
    for kind in ("acknowledgements", "changes"):  # a store may hold others of a later version
        done, of = covered.get(kind, (0, 0)) if isinstance(covered, Mapping) else (0, 0)
        if of:
            yield Looked(kind, done, of)
    if verdict.states_total:
        yield Looked("states", verdict.states_checked, verdict.states_total)


def find_whole_search(verdict: Verdict) -> int | None:
    """Minutes after which a search as fast as this one has checked all that decides; None where
    nothing tells."""
    covered = verdict.details.get(COVERED)
    if not isinstance(covered, Mapping) or not verdict.states_checked:
        return None
    left = sum(of - done for done, of in covered.values())
    seconds: float = verdict.seconds * (1 + left / verdict.states_checked)
    return max(1, math.ceil(seconds / 60))


def _longer(rows: Sequence[VerdictRow]) -> str:
    """What a study, or a call with --writer, has to say for all that decides to be checked."""
    open_still = [row.verdict for row in rows if row.verdict.kept_so_far]
    known = [minutes for each in open_still if (minutes := find_whole_search(each))]
    if not known:
        return "a longer explore_seconds (or --budget) does"
    wanted = f'explore_seconds = "{max(known)}m" under [crash] (with --writer: --budget)'
    return f"{wanted} does, by the pace seen here"


def whole_words(rows: Sequence[VerdictRow]) -> str:
    """What the disks of these verdicts are taken to write whole, whenever power fails, and to
    discard, where a discard may be carried out in part."""
    sizes = sorted({_sector(row) for row in rows})
    whole = f"a disk is taken to write {' or '.join(map(render_bytes, sizes))} whole"
    clusters = sorted({size for row in rows if (size := _discard_granularity(row))})
    torn = f", and to discard in pieces of {' or '.join(map(render_bytes, clusters))}"
    return whole + (torn if clusters else "")


def _sector(row: VerdictRow) -> int:
    return int(row.cell.workload.option("sector") or CrashRules.sector)


def _discard_granularity(row: VerdictRow) -> int | None:
    return int(row.cell.workload.option("discard_granularity") or 0) or None


def further_words(rows: Sequence[VerdictRow]) -> Iterator[str]:
    """What the verdicts stand on, what to do where a search left something out, and how to see the
    worst loss again."""
    yield whole_words(rows)
    if equal := sum(row.verdict.states_equal for row in rows):
        checked = sum(row.verdict.states_checked for row in rows)
        yield f"{equal:,} of {checked:,} states were judged by others, equal in all the check read"
    if any(row.verdict.kept_so_far for row in rows):
        left = "nothing was lost, but not all that decides was checked"
        yield f"kept so far: {left}: {_longer(rows)}"
    broken = [row.verdict for row in rows if row.verdict.is_broken and row.verdict.reproduce]
    if broken:
        worst = max(broken, key=lambda verdict: (verdict.counts, verdict.badness))
        yield f"to see the worst loss again: {worst.reproduce}"


def worst_losses(
    rows: Sequence[tuple[str, VerdictRow]], most: int
) -> Iterator[tuple[Sequence[TraceEvent], str]]:
    """The course and the caption of the worst losses, each of another fault; what a lying device
    loses tells nothing new. ``rows`` come with their labels."""
    told: dict[Fault, tuple[str, Verdict]] = {}
    for label, row in sorted(rows, key=lambda each: each[1].verdict.badness, reverse=True):
        if row.verdict.is_broken and row.verdict.counts and row.verdict.timeline:
            told.setdefault(row.verdict.fault, (label, row.verdict))
    for label, verdict in list(told.values())[:most]:
        yield verdict.timeline, timeline_caption(label, verdict)


def timeline_caption(label: str, verdict: Verdict) -> str:
    """What the picture of a loss shows, in a sentence."""
    missing, lost = len(verdict.missing), verdict.lost
    changes = "one change" if missing == 1 else f"{missing} changes"
    how = f"without {changes} that no flush had made durable"
    if not missing:
        how = "all that had been written to the disk was there"
    promised = "one acknowledged write is" if lost == 1 else f"{lost} acknowledged writes are"
    oldest = f"the oldest acknowledged {render_age(verdict.age_seconds)} before the crash"
    worst = f"In the worst state {promised} lost, {oldest}."
    return (
        f"The smallest loss that was found for {label} under {verdict.fault}: {how}. "
        f"{worst if lost else 'The worst state cannot be used.'}"
    )


def verdict_json(row: VerdictRow) -> VerdictJson:
    """One verdict as plain JSON; ``missing`` and ``cut`` are sequence numbers of the log."""
    verdict = row.verdict
    return {
        "fault": verdict.fault,
        "writer": row.cell.workload.name,
        "verdict": verdict.verdict,
        "kept_so_far": verdict.kept_so_far,
        "covered": verdict.details.get(COVERED),
        "lost": verdict.lost,
        "age_seconds": verdict.age_seconds,
        "states_checked": verdict.states_checked,
        "states_equal": verdict.states_equal,
        "states_total": verdict.states_total,
        "states_estimated": verdict.estimated,
        "cuts": verdict.cuts,
        "sector": _sector(row),
        "discard_granularity": _discard_granularity(row),
        "seed": verdict.seed,
        "cut": verdict.cut,
        "missing": list(verdict.missing),
        "causes": causes_json(find_causes(verdict.details)),
        "reason": verdict.reason,
        "reproduce": verdict.reproduce,
        "study": row.study_id,
        "run": row.run_id,
    }


def durability_json(durability: CellDurability | None) -> list[VerdictJson] | None:
    """The verdicts beside a speed, or None where there are none."""
    if durability is None:
        return None
    return [verdict_json(row) for row in durability.by_fault.values()]


def crash_cells_json(rows: Sequence[VerdictRow]) -> list[CrashCellJson]:
    """Verdicts with their cells, as ``diskproof crash --json`` prints them."""
    return [{"cell": row.cell.levels_dict(), **verdict_json(row)} for row in rows]
