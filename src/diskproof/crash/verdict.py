"""What the explorer found, from its lines to a verdict. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from diskproof.errors import RunFailure
from diskproof.records.causes import Cause
from diskproof.records.verdicts import COVERED, DURABILITIES, EQUAL, Durability, Fault, Verdict


@dataclass(frozen=True)
class Loss:
    """One state that breaks a promise: the records up to ``cut`` without the ``missing`` writes.

    ``lost`` acknowledged writes are not in it, the oldest acknowledged ``age_seconds`` before the
    cut. ``verdict`` is ``loses``, or ``corrupts`` where it cannot be used at all; ``text`` says
    how. ``state`` is the explorer's name of it, ``lost_sequences`` are the writer's own numbers of
    what is lost. ``order`` is where the search comes to it: pass, cut, number of the state.
    """

    cut: int
    missing: tuple[int, ...]
    lost: int
    age_seconds: float
    verdict: Durability = "loses"
    text: str = ""
    state: str = ""
    lost_sequences: tuple[int, ...] = ()
    order: tuple[int, int, int] = (0, 0, 0)

    @property
    def severity(self) -> tuple[int, int, float]:
        """Larger is worse: the word, how much is lost, how old it is."""
        return DURABILITIES.index(self.verdict), self.lost, self.age_seconds


@dataclass(frozen=True)
class Coverage:
    """What a search looked at of that without which ``keeps`` is not said, and how many there are:
    ``acknowledgements`` with nothing that was not durable, and single ``changes`` missing, at the
    first and the last acknowledgement that came while each was not durable.
    """

    acknowledgements: tuple[int, int]
    changes: tuple[int, int]

    @property
    def is_whole(self) -> bool:
        return all(done >= of for done, of in (self.acknowledgements, self.changes))

    @property
    def gaps(self) -> str:
        """What is not covered, in words; empty where nothing is."""
        names = {"acknowledgements": self.acknowledgements, "single missing changes": self.changes}
        told = [f"{done:,} of {of:,} {name}" for name, (done, of) in names.items() if done < of]
        return f"looked at {' and '.join(told)}" if told else ""


@dataclass(frozen=True)
class Explored:
    """What a search found under one fault. ``promises`` counts the acknowledgements there were.

    ``worst`` is the state that lost most, ``smallest`` the minimised loss. ``failure`` is why the
    search broke off; what it had found by then still counts. ``covered``: at its end. ``equal`` of
    the checked states were judged by another, which equals them in all that the check read; where
    the check is ``unsteady`` none is.
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
    covered: Coverage | None = None
    equal: int = 0
    unsteady: bool = False


UNSTEADY = (
    "the check does not always answer the same where all that it reads of a state is the same (a "
    "clock, random numbers, something outside of the state?); where that was noticed, every state "
    "was judged by a run"
)


def judge(found: Explored) -> Verdict:
    """The verdict on one fault.

    A loss that was found is proved, whatever came after; where the search then broke off, there
    may be a worse one, and the reason says so. ``keeps`` needs a promise that could have been
    broken and a search that covered what decides (``Coverage``); without them, or after a failure,
    the verdict is ``undecided`` with the reason.
    """
    worst = found.worst
    notes: dict[str, object] = {EQUAL: found.equal} if found.equal else {}
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
    if worst is not None:
        smallest = found.smallest or worst
        broken_off = f"the search broke off: {found.failure}" if found.failure else ""
        doubt = UNSTEADY if found.unsteady else ""
        reasons = (worst.text if worst.verdict == "corrupts" else "", broken_off, doubt)
        return replace(
            verdict,
            verdict=worst.verdict,
            lost=worst.lost,
            age_seconds=worst.age_seconds,
            cut=smallest.cut,
            missing=smallest.missing,
            reason="; ".join(filter(None, reasons)),
            details={
                **notes,
                "worst_state": worst.state,
                "smallest_state": smallest.state,
                "smallest_lost": list(smallest.lost_sequences[:100]) or smallest.lost,
            },
        )
    if found.covered and found.promises:
        notes[COVERED] = asdict(found.covered)
    doubt = _find_doubt(found)
    word: Durability = "undecided" if doubt else "keeps"
    reason = "; ".join(filter(None, (doubt, UNSTEADY if found.unsteady else "")))
    return replace(verdict, verdict=word, reason=reason, details=notes)


def _find_doubt(found: Explored) -> str:
    if found.failure:
        return found.failure
    if not found.promises:
        return "the writer was promised nothing, so nothing can be lost"
    if not found.states_checked or found.covered is None:
        return "no state was checked in the time there was"
    return found.covered.gaps


def as_bad_as(found: Explored, causes: Sequence[Cause]) -> Explored:
    """What a search found, with the worst of its causes where that is worse: each is a state of
    the same log under the same fault, to which the search had not come."""
    worst = max(map(_loss_by, causes), key=lambda loss: loss.severity, default=None)
    if worst is None or (found.worst and worst.severity <= found.worst.severity):
        return found
    seen = max(1, found.states_checked)
    return replace(found, worst=worst, smallest=None, states_checked=seen)


def _loss_by(cause: Cause) -> Loss:
    missing = tuple(each.sequence for each in cause.operations)
    word: Durability = "corrupts" if cause.corrupts else "loses"
    loss = Loss(cause.cut, missing, cause.lost, cause.age_seconds, word)
    return replace(loss, text=cause.text, state=cause.state)


def undecided(fault: Fault, reason: str, seed: int = 0) -> Verdict:
    """The verdict where there was nothing to judge."""
    return Verdict(fault, "undecided", reason=reason, seed=seed)


def fall_short(verdicts: Sequence[Verdict]) -> bool:
    """Whether a promise was broken that a setting is responsible for, or nothing could be said."""
    return any(each.verdict == "undecided" or (each.is_broken and each.counts) for each in verdicts)


# -- the explorer's lines -------------------------------------------------------------------


_ODD = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


def take_line(found: Explored, line: bytes) -> Explored:
    """What is known after one more line of the explorer. Raises RunFailure ``tool``."""
    try:
        content = json.loads(line)
        taker = _TAKERS[content["type"]]
        return taker(found, content)
    except _ODD as error:
        why = f"{type(error).__name__} in {line[:200]!r}"
        raise RunFailure("tool", "the explorer said what nobody understands", why) from None


def _take_progress(found: Explored, content: Mapping[str, Any]) -> Explored:
    planned, checked = int(content["planned"]), int(content["checked"])
    return replace(
        found,
        states_checked=checked,
        states_total=max(planned, checked),
        seconds=float(content["seconds"]),
    )


def _take_loss(found: Explored, content: Mapping[str, Any]) -> Explored:
    loss = _read_loss(content)
    # It may be told before the first progress, and break off before the next.
    found = replace(found, states_checked=max(1, found.states_checked))
    worse = found.worst is None or loss.severity > found.worst.severity
    return replace(found, worst=loss) if worse else found


def _take_minimised(found: Explored, content: Mapping[str, Any]) -> Explored:
    return replace(found, smallest=_read_loss(content))


def _take_summary(found: Explored, content: Mapping[str, Any]) -> Explored:
    states = content["states"]
    checked, planned = int(states["checked"]), int(states["planned"])
    # All planned states were seen and random ones brought nothing new: these are all there are.
    whole = bool(states["planned_done"]) and not content["timed_out"]
    worst = found.worst
    if content["state"] is not None:
        # Not every state is told on the way; what the check said of it then is.
        worst = replace(
            _read_loss(content),
            missing=(),
            text=worst.text if worst else "",
            lost_sequences=worst.lost_sequences if worst else (),
        )
    return replace(
        found,
        worst=worst,
        states_checked=checked,
        states_total=checked if whole else max(planned, checked),
        estimated=not whole,
        cuts=int(content["cuts"]),
        seconds=float(content["seconds"]),
        covered=_read_coverage(content["covered"]),
        equal=int(states["equal"]),
        unsteady=bool(content["unsteady"]),
    )


def _read_coverage(content: Mapping[str, Any]) -> Coverage:
    shares = (content["acknowledgements"], content["changes"])
    done, of = ([int(share[name]) for share in shares] for name in ("done", "of"))
    return Coverage((done[0], of[0]), (done[1], of[1]))


def _take_error(found: Explored, content: Mapping[str, Any]) -> Explored:
    return replace(found, failure=f"{content['what']}: {content['why']}"[:2000])


_TAKERS: Mapping[str, Callable[[Explored, Mapping[str, Any]], Explored]] = {
    "progress": _take_progress,
    "loss": _take_loss,
    "minimised": _take_minimised,
    "summary": _take_summary,
    "error": _take_error,
}


def _read_loss(content: Mapping[str, Any]) -> Loss:
    """A state that breaks a promise, as a line tells it."""
    ledger = content.get("ledger") or {}
    lost = [int(sequence) for sequence, *_ in ledger.get("lost_sequences") or ()]
    pass_, cut, number = (int(part) for part in content.get("order") or (0, 0, 0))
    return Loss(
        cut=int(content["cut"]),
        missing=tuple(int(sequence) for sequence in content.get("missing") or ()),
        lost=int(content["lost"]),
        age_seconds=int(content.get("age_ns") or 0) / 1e9,
        verdict=DURABILITIES[DURABILITIES.index(content["verdict"])],
        text=str(content.get("output") or "")[:2000],
        state=str(content["state"]),
        lost_sequences=tuple(lost[:1000]),
        order=(pass_, cut, number),
    )
