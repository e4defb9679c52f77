"""Durability beside speed: which verdicts are about the disk of a measured cell.

A verdict is made of a crash cell, a speed of a measured one, often in another study. Both are
about the same disk when they agree in the levels that decide what reaches the host's file, when
and in which order. The accelerator, the guest's size, the iothread, the place of the image and
the sizes of clusters and caches do not decide that, and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diskproof.crash_rules import FAULTS
from diskproof.records import Cell, Durability, Fault, Verdict
from diskproof.report.labels import cell_label, varying_factors
from diskproof.store.rows import VerdictRow

DECIDING = (
    *("frontend", "format", "preallocation", "cache", "aio", "discard", "detect-zeroes"),
    *("lazy_refcounts", "bus"),
)
"""The factors that a verdict and a speed must agree in."""

HONEST_FAULTS: tuple[Fault, ...] = ("power", "qemu-kill", "guest-kill")
"""The faults that a setting can be good against; a lying device loses under every setting."""

_BADNESS: Mapping[Durability, int] = {"undecided": 0, "keeps": 1, "loses": 2, "corrupts": 3}


@dataclass(frozen=True)
class CellDurability:
    """The worst verdict of each fault over all writers, by fault."""

    by_fault: Mapping[Fault, VerdictRow]

    @property
    def worst(self) -> VerdictRow | None:
        """The worst of the faults that settings are responsible for. An undecided one is worse
        than one that keeps: nobody knows."""
        rows = [row for fault, row in self.by_fault.items() if fault in HONEST_FAULTS]
        undecided = [row for row in rows if row.verdict.verdict == "undecided"]
        worst = max(rows, key=badness, default=None)
        return undecided[0] if undecided and worst and is_kept(worst) else worst


Levels = tuple[tuple[str, str], ...]


def badness(row: VerdictRow) -> tuple[int, int, float]:
    """What makes one verdict worse than another; undecided proves nothing, so it comes last."""
    verdict = row.verdict
    return _BADNESS[verdict.verdict], verdict.lost, verdict.age_seconds


def is_kept(row: VerdictRow) -> bool:
    return row.verdict.verdict in ("keeps", "undecided")


def deciding_levels(cell: Cell) -> Levels:
    """The levels by which cells and verdicts are joined."""
    return tuple((name, level) for name, level in cell.levels if name in DECIDING)


def join_verdicts(rows: Iterable[VerdictRow]) -> dict[Levels, CellDurability]:
    """Verdicts by the levels they are about. Of several the worst counts: a loss that was once
    found stays found."""
    found: dict[Levels, dict[Fault, VerdictRow]] = {}
    for row in rows:
        by_fault = found.setdefault(deciding_levels(row.cell), {})
        known = by_fault.get(row.verdict.fault)
        if known is None or badness(row) > badness(known):
            by_fault[row.verdict.fault] = row
    return {
        levels: CellDurability({fault: found_[fault] for fault in FAULTS if fault in found_})
        for levels, found_ in found.items()
    }


def crash_labels(rows: Sequence[VerdictRow]) -> list[str]:
    """The cells of verdicts by what tells them apart; where nothing does, by their frontend."""
    factors = varying_factors(row.cell for row in rows) or ("frontend",)
    return [cell_label(row.cell, factors) for row in rows]


# -- words ----------------------------------------------------------------------------------


def verdict_text(verdict: Verdict) -> str:
    """A verdict in a table: ``keeps``, ``loses 12, 1.3 s``, ``corrupts``, ``undecided``."""
    if verdict.verdict == "loses":
        return f"loses {verdict.lost}, {render_age(verdict.age_seconds)}"
    if verdict.verdict == "corrupts" and verdict.lost:
        return f"corrupts, loses {verdict.lost}"
    return verdict.verdict


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


def short_text(durability: CellDurability | None) -> str:
    """The column beside the speed: the worst verdict, ``-`` where there is none."""
    worst = durability.worst if durability else None
    return verdict_text(worst.verdict) if worst else "-"


def durability_sentence(rows: Sequence[VerdictRow]) -> str:
    """How many crash cells keep their promises under the faults that a setting can be good
    against, and how many do not. Empty without verdicts."""
    cells: dict[str, list[VerdictRow]] = {}
    for row in rows:
        if row.verdict.fault in HONEST_FAULTS:
            cells.setdefault(row.cell.id, []).append(row)
    worst = [max(each, key=badness).verdict.verdict for each in cells.values()]
    open_ = [any(r.verdict.verdict == "undecided" for r in each) for each in cells.values()]
    kept = sum(v in ("keeps", "undecided") and not o for v, o in zip(worst, open_, strict=True))
    bad = sum(verdict in ("loses", "corrupts") for verdict in worst)
    if not cells:
        return ""
    told = [
        f"{kept} of {len(cells)} crash cells kept all acknowledged writes in every state checked"
    ]
    told += [f"{bad} lost or corrupted some"] if bad else []
    left = len(cells) - kept - bad
    told += [f"of {left} it is not decided"] if left else []
    return "; ".join(told) + "."


def verdict_json(row: VerdictRow) -> dict[str, object]:
    """One verdict as plain JSON; ``missing`` and ``cut`` are sequence numbers of the log."""
    verdict = row.verdict
    return {
        "fault": verdict.fault,
        "writer": row.cell.workload.name,
        "verdict": verdict.verdict,
        "lost": verdict.lost,
        "age_seconds": verdict.age_seconds,
        "states_checked": verdict.states_checked,
        "states_total": verdict.states_total,
        "states_estimated": verdict.estimated,
        "cuts": verdict.cuts,
        "seed": verdict.seed,
        "cut": verdict.cut,
        "missing": list(verdict.missing),
        "reason": verdict.reason,
        "reproduce": verdict.reproduce,
        "study": row.study_id,
        "run": row.run_id,
    }


def durability_json(durability: CellDurability | None) -> list[dict[str, object]] | None:
    """The verdicts beside a speed, or None where there are none."""
    if durability is None:
        return None
    return [verdict_json(row) for row in durability.by_fault.values()]


def crash_cells_json(rows: Sequence[VerdictRow]) -> list[dict[str, object]]:
    """Verdicts with their cells, as ``diskproof crash --json`` prints them."""
    return [{"cell": row.cell.levels_dict(), **verdict_json(row)} for row in rows]
