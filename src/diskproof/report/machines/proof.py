"""Whether a verdict in the store is about a disk that was found: then it is proved.

By the rule of docs/crash.md: all levels that decide what is flushed when must agree. Of these the
preallocation of an image, and whether its reference counts are lazy, stand in no configuration;
where they are not known they are taken at their defaults, and that is said.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from diskproof.advice.judge import in_force, writes_through
from diskproof.advice.observed import no_barrier
from diskproof.records.verdicts import VerdictRow
from diskproof.records.virtual_machines import DiskJudgement, MachineJudgement, Remark
from diskproof.report.durability import join_verdicts, shared_text, verdict_text
from diskproof.study.factors import FACTOR_BY_NAME

_GUESTS = ("guest", "own-guest")
_NOT_WRITTEN = ("preallocation", "lazy_refcounts")
_SETTINGS = ("no-flush",)
"""Rules that speak of the settings alone, which a verdict is about."""


def prove_machine(judged: MachineJudgement, rows: Sequence[VerdictRow]) -> MachineJudgement:
    """A machine's judgement with the verdicts that are about its disks."""
    return replace(judged, disks=tuple(prove_disk(disk, rows) for disk in judged.disks))


def prove_disk(judged: DiskJudgement, rows: Sequence[VerdictRow]) -> DiskJudgement:
    """The judgement, proved where the store has a verdict for such a disk and nothing else is
    wrong with it. What is unknown stays unknown: a verdict says nothing of what was not seen."""
    disk = judged.disk
    if disk.read_only or disk.kind == "network" or disk.below is None:
        return judged
    others = [remark for remark in disk.remarks if remark.rule not in _SETTINGS]
    if any(remark.effect in ("unknown", "may lose", "loses") for remark in others):
        return judged
    levels = in_force(disk)
    asked = [row for row in rows if _asks_the_same(row, bool(writes_through(levels)))]
    for known, durability in join_verdicts(asked).items():
        taken = _taken(dict(known), levels)
        if taken is not None and (worst := durability.worst) is not None:
            return _with_proof(judged, worst, taken)
    return judged


def _asks_the_same(row: VerdictRow, through: bool) -> bool:
    """A writer that never flushes asks whether each write is durable, which only a disk that
    writes through promises; one whose file system sends no flush asks about that. What a program of
    somebody's loses may be its own fault."""
    options = dict(row.cell.workload.options)
    is_its_own = row.verdict.is_broken and "check" in options
    if is_its_own or (options.get("durable", "flush") == "write" and not through):
        return False
    return row.cell.level("frontend") in _GUESTS and not no_barrier(f"- {options.get('mount', '')}")


def _taken(cell: Mapping[str, str], disk: Mapping[str, str]) -> tuple[str, ...] | None:
    """The factors taken at their defaults where the levels agree, None where they do not."""
    taken = []
    for factor, level in cell.items():
        if factor == "frontend":
            continue
        if factor not in disk and factor in _NOT_WRITTEN:
            if level != FACTOR_BY_NAME[factor].default:
                return None
            taken.append(f"{factor}={level}")
        elif disk.get(factor) != level:
            return None
    return tuple(taken)


def _with_proof(judged: DiskJudgement, row: VerdictRow, taken: tuple[str, ...]) -> DiskJudgement:
    verdict = row.verdict
    if verdict.verdict == "undecided":
        return judged
    made = time.strftime("%Y-%m-%d", time.localtime(row.ended))
    told = f"{shared_text(verdict)} states" if verdict.verdict == "keeps" else verdict_text(verdict)
    what = f"such a disk {told} ({row.cell.workload.name}, fault {verdict.fault}, {made})"
    if taken:
        what += f"; not read of this one: {', '.join(taken)}"
    source = f"diskproof crash, run {row.run_id[:8]}"
    effect = "loses" if verdict.is_broken else judged.effect
    if not verdict.is_broken and judged.effect == "loses":  # no loss found is no proof against it
        return judged
    remark = Remark("proved", "running", effect, what, source, "proved")
    disk = replace(judged.disk, remarks=(*judged.disk.remarks, remark))
    return DiskJudgement(disk, effect, "proved", what, source)
