"""What is known of a cell's data under the fault asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from diskproof.errors import UsageError
from diskproof.records.verdicts import Fault, VerdictRow
from diskproof.report.barred import Bar
from diskproof.report.durability import CellDurability

Keep = Literal["power", "qemu-kill", "none"]
KEEPS: tuple[Keep, ...] = get_args(Keep)
KeepingWord = Literal["keeps", "undecided", "not judged", "loses", "corrupts", "drops flushes"]

_COVERED: dict[Keep, tuple[Fault, ...]] = {
    "power": ("power", "qemu-kill", "guest-kill"),
    "qemu-kill": ("qemu-kill", "guest-kill"),
    "none": ("power", "qemu-kill", "guest-kill"),
}
"""Who asks for a fault asks for the milder ones as well. The first is the one asked for: without
any, what a power cut does is still told."""


@dataclass(frozen=True)
class Keeping:
    """``row`` is the verdict that decides, ``bars`` are rules that decide without one."""

    fault: Fault
    word: KeepingWord
    row: VerdictRow | None = None
    bars: tuple[Bar, ...] = ()

    @property
    def is_proved(self) -> bool:
        return self.word == "keeps"

    @property
    def is_open(self) -> bool:
        """Nobody knows yet."""
        return self.word in ("not judged", "undecided")

    @property
    def drops_flushes(self) -> bool:
        return any(bar.drops_flushes for bar in self.bars)


def require_keep(text: str) -> Keep:
    """What is asked for. Raises UsageError for an unknown fault."""
    for keep in KEEPS:
        if text == keep:
            return keep
    raise UsageError(f"--keep: no fault {text!r}", f"there are {', '.join(KEEPS)}")


def find_keeping(
    durability: CellDurability | None, keep: Keep, bars: Sequence[Bar] = ()
) -> Keeping:
    """The worst that is known of the faults that ``keep`` covers; no verdict lifts a rule."""
    covered = _COVERED[keep]
    fault = covered[0]
    rows = durability.by_fault if durability else {}
    told = tuple(bar for bar in bars if bar.drops_flushes or bar.useless or fault == "power")
    broken = [rows[each] for each in covered if each in rows and rows[each].verdict.is_broken]
    if broken:
        worst = max(broken, key=lambda row: row.verdict.badness)
        word: KeepingWord = "corrupts" if worst.verdict.verdict == "corrupts" else "loses"
        return Keeping(worst.verdict.fault, word, worst, told)
    if told:
        return Keeping(fault, "drops flushes", rows.get(fault), told)
    if fault not in rows:
        return Keeping(fault, "not judged")
    row = rows[fault]
    return Keeping(fault, "keeps" if row.verdict.verdict == "keeps" else "undecided", row)
