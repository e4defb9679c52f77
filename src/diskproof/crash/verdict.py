"""What the explorer found, judged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diskproof.records.verdicts import Fault, Verdict


@dataclass(frozen=True)
class Loss:
    """One state that breaks a promise: the records up to ``cut`` without the ``missing`` writes.

    ``lost`` acknowledged writes are not in it, the oldest acknowledged ``age_seconds`` before the
    cut. ``corrupt``: it cannot be used at all; ``text`` says how. ``state`` is the explorer's name
    of it, ``lost_sequences`` are the writer's own numbers of what is lost. ``order`` is where the
    search comes to it: pass, cut, number of the state.
    """

    cut: int
    missing: tuple[int, ...]
    lost: int
    age_seconds: float
    corrupt: bool = False
    text: str = ""
    state: str = ""
    lost_sequences: tuple[int, ...] = ()
    order: tuple[int, int, int] = (0, 0, 0)

    @property
    def severity(self) -> tuple[bool, int, float]:
        """Larger is worse: corrupt, how much is lost, how old it is."""
        return self.corrupt, self.lost, self.age_seconds


@dataclass(frozen=True)
class Explored:
    """What a search found under one fault. ``promises`` counts the acknowledgements there were.

    ``worst`` is the state that lost most, ``smallest`` the minimised loss. ``failure`` is why the
    search broke off; what it had found by then still counts.
    """

    fault: Fault
    promises: int
    states_checked: int
    states_total: int | None
    estimated: bool
    cuts: int
    seed: int
    seconds: float
    worst: Loss | None = None
    smallest: Loss | None = None
    failure: str = ""


def judge(found: Explored) -> Verdict:
    """The verdict on one fault.

    A loss that was found is proved, whatever came after; where the search then broke off, there
    may be a worse one, and the reason says so. ``keeps`` needs a promise that could have been
    broken and a state that was checked; without them, or after a failure, the verdict is
    ``undecided`` with the reason.
    """
    worst = found.worst
    verdict = Verdict(
        fault=found.fault,
        verdict="keeps",
        states_checked=found.states_checked,
        states_total=found.states_total,
        estimated=found.estimated,
        cuts=found.cuts,
        seed=found.seed,
        seconds=found.seconds,
    )
    if worst is not None and (worst.corrupt or worst.lost):
        smallest = found.smallest or worst
        broken_off = f"the search broke off: {found.failure}" if found.failure else ""
        reasons = (worst.text if worst.corrupt else "", broken_off)
        return replace(
            verdict,
            verdict="corrupts" if worst.corrupt else "loses",
            lost=worst.lost,
            age_seconds=worst.age_seconds,
            cut=smallest.cut,
            missing=smallest.missing,
            reason="; ".join(filter(None, reasons)),
            details={
                "worst_state": worst.state,
                "smallest_state": smallest.state,
                "smallest_lost": list(smallest.lost_sequences[:100]) or smallest.lost,
            },
        )
    reason = _find_doubt(found)
    return replace(verdict, verdict="undecided", reason=reason) if reason else verdict


def _find_doubt(found: Explored) -> str:
    if found.failure:
        return found.failure
    if not found.promises:
        return "the writer was promised nothing, so nothing can be lost"
    return "" if found.states_checked else "no state was checked in the time there was"


def undecided(fault: Fault, reason: str, seed: int = 0) -> Verdict:
    """The verdict where there was nothing to judge."""
    return Verdict(fault, "undecided", reason=reason, seed=seed)


def loses_promises(verdicts: Sequence[Verdict]) -> bool:
    """Whether a promise was broken that a setting is responsible for."""
    return any(verdict.is_broken and verdict.counts for verdict in verdicts)
