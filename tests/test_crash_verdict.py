"""What is judged of a search, and how the explorer's lines are read: pure."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.crash.end_state import promised_at, read_exit
from diskproof.crash.explore import StateSearch, _without_refusals, search_request
from diskproof.crash.verdict import (
    Coverage,
    Explored,
    Loss,
    as_bad_as,
    fall_short,
    judge,
    take_line,
)
from diskproof.errors import RunFailure
from diskproof.process.start import Completed
from diskproof.recording.log import ACKNOWLEDGE, Frame
from diskproof.records.causes import Cause
from diskproof.records.verdicts import FAULTS, Verdict

losses = st.builds(
    Loss,
    cut=st.integers(0, 99),
    missing=st.lists(st.integers(1, 99), max_size=5).map(tuple),
    lost=st.integers(1, 50),
    age_seconds=st.floats(0, 100),
    verdict=st.sampled_from(["loses", "corrupts"]),
)
searches = st.builds(
    Explored,
    fault=st.sampled_from(FAULTS),
    promises=st.integers(0, 5),
    states_checked=st.integers(0, 1000),
    states_total=st.none() | st.integers(0, 10**6),
    estimated=st.booleans(),
    cuts=st.integers(0, 50),
    seed=st.integers(0, 9),
    seconds=st.floats(0, 60),
    worst=st.none() | losses,
    smallest=st.none() | losses,
    failure=st.sampled_from(["", "it died"]),
    covered=st.none()
    | st.builds(Coverage, *[st.sampled_from([(0, 3), (2, 3), (3, 3), (0, 0)])] * 2),
)


@given(searches)
def test_keeps_is_only_said_of_a_promise_that_was_put_to_the_test(found: Explored) -> None:
    verdict = judge(found)
    if verdict.verdict == "keeps":
        assert found.promises and found.states_checked and not found.failure
        assert found.worst is None
        assert found.covered is not None and found.covered.is_whole
    if verdict.verdict == "undecided":
        assert verdict.reason
    assert not verdict.kept_so_far or (found.promises and found.covered and not verdict.is_broken)


@given(searches)
def test_a_loss_that_was_found_is_proved_whatever_came_after(found: Explored) -> None:
    verdict = judge(found)
    worst = found.worst
    assert verdict.is_broken == (worst is not None)
    if worst is not None:
        shown = found.smallest or worst
        assert verdict.badness == worst.severity
        assert (verdict.cut, verdict.missing) == (shown.cut, shown.missing)
        assert fall_short([verdict]) == verdict.counts
        assert verdict.reason.endswith(found.failure)


@given(searches, st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=4))
def test_no_verdict_is_better_than_one_of_its_causes(
    found: Explored, causes: list[tuple[bool, int]]
) -> None:
    """The search for causes may come to states that the one for the verdict had no time for."""
    listed = [
        Cause(n, corrupts, lost, 0.5, f"power:512:{n}:without=7", n, (), None, 1, 1, None, "bad")
        for n, (corrupts, lost) in enumerate(causes, 3)
    ]
    seen = as_bad_as(found, listed)
    before, after = judge(found), judge(seen)
    worst = max((2 + each.corrupts, each.lost, 0.5) for each in listed) if listed else (0, 0, 0.0)
    known = found.worst.severity if found.worst else (0, 0, 0.0)
    assert (seen == found) == (known >= worst)
    if seen == found:
        return
    assert after.badness == worst > before.badness
    (cause,) = [each for each in listed if after.details["worst_state"] == each.state]
    assert (after.cut, after.details["smallest_state"]) == (cause.cut, cause.state)
    assert after.is_broken and not after.kept_so_far and after.states_checked
    assert after.reason.startswith("bad") == cause.corrupts
    assert after.reason.endswith(found.failure)


def test_what_is_undecided_may_be_worse_than_what_keeps() -> None:
    verdicts = [
        *(Verdict("power", "corrupts"), Verdict("power", "loses", 2, 1.0)),
        *(Verdict("power", "loses", 2, 0.5), Verdict("power", "loses", 1, 9.0)),
        *(Verdict("power", "undecided"), Verdict("power", "keeps")),
    ]
    assert sorted(verdicts, key=lambda verdict: verdict.badness, reverse=True) == verdicts
    assert [verdict.is_broken for verdict in verdicts] == [True] * 4 + [False] * 2


REFUSED = "qemu-img: Could not open 'disk.qcow2': Permission denied"
TORN = "qemu-img: Could not open 'disk.qcow2': Image is corrupt"


@pytest.mark.parametrize(
    ("text", "lost", "verdict"),
    [(REFUSED, 0, "undecided"), (REFUSED, 2, "corrupts"), (TORN, 0, "corrupts")],
)
def test_a_state_that_nobody_might_open_is_no_loss(text: str, lost: int, verdict: str) -> None:
    """Unless it has lost something too, or could be opened and was not whole."""
    worst = Loss(3, (2,), lost, 0.0, "corrupts", text)
    covered = Coverage((3, 3), (3, 3))
    found = Explored("power", 5, 9, 9, False, 3, 1, 0.5, worst, covered=covered)
    judged = judge(_without_refusals(found))
    assert judged.verdict == verdict
    if verdict == "undecided":
        assert judged.reason == f"a state could not be opened: {REFUSED}"
        assert not judged.kept_so_far
    unbroken = replace(found, worst=None)
    assert _without_refusals(unbroken) == unbroken


# -- how old a loss is --------------------------------------------------------------------------


def promises(*lines: str) -> list[Frame]:
    """Acknowledgements, a second apart from 1 s on."""
    return [
        Frame(ACKNOWLEDGE, 0, 0, n, n * 10**9, n * 10**9, 0, line.encode(), 0)
        for n, line in enumerate(lines, 1)
    ]


LEDGER = ("ledger ab 0 0 32 00", "ledger ab 4", "ledger ab 8", "ledger ab 8", "ledger ab 12")


@pytest.mark.parametrize(
    ("lines", "lost", "sequences", "second"),
    [
        (("a", "b", "c"), 1, (), 3),
        (("a", "b", "c"), 3, (), 1),
        (("a", "b", "c"), 9, (), 1),
        (LEDGER, 1, (), 5),
        (LEDGER, 4, (), 5),
        (LEDGER, 5, (), 3),
        (LEDGER, 12, (), 2),
        (LEDGER, 2, (3, 12), 2),
        (LEDGER, 1, (5,), 3),
        (LEDGER[:1], 1, (), 0),
        ((), 1, (), 0),
    ],
)
def test_of_promises_that_are_counted_the_last_are_lost(
    lines: tuple[str, ...], lost: int, sequences: tuple[int, ...], second: int
) -> None:
    assert promised_at(promises(*lines), lost, sequences) == second * 10**9


# -- the explorer's lines -------------------------------------------------------------------

EMPTY = Explored("power", 3, 0, None, True, 0, 7, 0.0)
LOSS = {
    "type": "loss",
    "state": "power:512:12:nothing",
    "cut": 12,
    "moment_ns": 5,
    "verdict": "loses",
    "lost": 5,
    "age_ns": 1_500_000,
    "ledger": {"lost": 5, "lost_sequences": [[1, "missing"], [2, "torn"]]},
    "command": [],
}
SUMMARY = {
    "type": "summary",
    "verdict": "loses",
    "fault": "power",
    "sector": 512,
    "seed": 7,
    "lost": 9,
    "age_ns": 2_000_000_000,
    "state": "power:512:20:nothing",
    "cut": 20,
    "order": [2, 20, 1],
    "minimal": "power:512:20:without=10",
    "missing": [10],
    "cuts": 8,
    "acknowledgements": 3,
    "states": {
        "built": 30,
        "distinct": 20,
        "checked": 20,
        "equal": 12,
        "losing": 4,
        "planned": 25,
        "planned_done": True,
        "random_rounds": 16,
    },
    "covered": {"acknowledgements": {"done": 3, "of": 3}, "changes": {"done": 9, "of": 9}},
    "unsteady": False,
    "log": "open",
    "timed_out": False,
    "seconds": 0.5,
}


KEEPS = {**SUMMARY, "verdict": "keeps", "lost": 0, "age_ns": None, "state": None, "cut": None}


def take(found: Explored, *lines: dict[str, object]) -> Explored:
    for line in lines:
        found = take_line(found, json.dumps(line).encode())
    return found


def test_a_search_is_known_line_by_line() -> None:
    progress = {"type": "progress", "built": 9, "checked": 8, "losing": 1, "planned": 25}
    found = take(EMPTY, {**progress, "seconds": 1.0}, LOSS)
    assert (found.states_checked, found.states_total, found.estimated) == (8, 25, True)
    assert found.worst == Loss(
        12, (), 5, 0.0015, state="power:512:12:nothing", lost_sequences=(1, 2)
    )
    small = {**LOSS, "type": "minimised", "lost": 1, "missing": [10], "cut": 20}
    found = take(found, {**small, "checks": 3, "is_minimal": True}, SUMMARY)
    assert found.worst is not None and found.smallest is not None
    assert (found.worst.lost, found.worst.age_seconds) == (9, 2.0)
    assert (found.worst.state, found.worst.order) == ("power:512:20:nothing", (2, 20, 1))
    assert found.worst.cut == 20
    assert (found.smallest.lost, found.smallest.missing) == (1, (10,))
    assert (found.states_checked, found.states_total, found.estimated) == (20, 20, False)
    verdict = judge(found)
    assert (verdict.verdict, verdict.lost, verdict.missing, verdict.cut) == ("loses", 9, (10,), 20)


def test_states_that_were_judged_by_others_are_counted() -> None:
    for line in (KEEPS, SUMMARY):
        verdict = judge(take(EMPTY, line))
        assert (verdict.states_checked, verdict.states_equal) == (20, 12)
        assert "does not always answer the same" not in verdict.reason


def test_a_check_that_does_not_always_answer_the_same_is_told() -> None:
    states = {**SUMMARY["states"], "equal": 0}  # type: ignore[dict-item]
    for line, word in ((KEEPS, "keeps"), (SUMMARY, "loses")):
        verdict = judge(take(EMPTY, {**line, "states": states, "unsteady": True}))
        assert (verdict.verdict, verdict.states_equal) == (word, 0)
        assert "the check does not always answer the same" in verdict.reason


def test_a_search_that_ran_out_of_time_says_that_there_may_be_more() -> None:
    states = {**SUMMARY["states"], "planned_done": False}  # type: ignore[dict-item]
    found = take(EMPTY, {**KEEPS, "states": states, "timed_out": True})
    assert (found.states_checked, found.states_total, found.estimated) == (20, 25, True)
    assert judge(found).verdict == "keeps"


@pytest.mark.parametrize(
    ("acknowledgements", "changes", "reason"),
    [
        ((2, 3), (9, 9), "looked at 2 of 3 acknowledgements"),
        ((3, 3), (0, 1200), "looked at 0 of 1,200 single missing changes"),
        (
            (0, 3),
            (0, 9),
            "looked at 0 of 3 acknowledgements and 0 of 9 single missing changes",
        ),
    ],
)
def test_what_was_not_covered_is_kept_so_far_and_no_more(
    acknowledgements: tuple[int, int], changes: tuple[int, int], reason: str
) -> None:
    shares = {"acknowledgements": acknowledgements, "changes": changes}
    covered = {name: {"done": done, "of": of} for name, (done, of) in shares.items()}
    verdict = judge(take(EMPTY, {**KEEPS, "covered": covered, "timed_out": True}))
    assert (verdict.verdict, verdict.kept_so_far, verdict.reason) == ("undecided", True, reason)
    assert fall_short([verdict])


def test_a_stored_keeps_of_a_search_that_ended_early_is_kept_so_far() -> None:
    """Those of earlier versions did not note what they had covered."""
    early = Verdict("power", "keeps", states_checked=2, states_total=1135, estimated=True)
    told = early.as_far_as_covered
    assert (told.verdict, told.kept_so_far) == ("undecided", True)
    whole = replace(early, states_checked=1135, estimated=False)
    noted = replace(early, details={"covered": {}})
    assert [each.as_far_as_covered for each in (whole, noted)] == [whole, noted]


def test_an_error_of_the_explorer_leaves_it_undecided() -> None:
    found = take(EMPTY, {"type": "error", "what": "reading the log", "why": "no ledger"})
    assert judge(found).reason == "reading the log: no ledger"
    assert judge(found).verdict == "undecided"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"type": "loss"}',
        b'{"type": "what"}',
        b'{"type": []}',
        b"\xff",
    ],
)
def test_what_nobody_understands_is_a_failure(line: bytes) -> None:
    with pytest.raises(RunFailure):
        take_line(EMPTY, line)


@given(st.binary(max_size=50) | st.from_regex(rb'\{"type": ?"[a-z]{1,9}".{0,30}\}', fullmatch=True))
def test_no_line_makes_another_error(line: bytes) -> None:
    try:
        take_line(EMPTY, line)
    except RunFailure as failure:
        assert failure.kind == "tool"


def test_the_request() -> None:
    from pathlib import Path

    check = {"kind": "ledger", "target": "disk.raw", "format": "raw"}
    search = StateSearch(Path("/l"), Path("/b"), "qemu-kill", check, 3, 512, 7, 100, 2.5)
    assert search_request(search) == {
        "log": "/l",
        "base": "/b",
        "fault": "kill",
        "sector": 512,
        "seed": 7,
        "check": check,
        "budget": {"states": 100, "seconds": 2.5, "minimise": 2000},
    }


def test_every_fault_has_its_verdict() -> None:
    for fault in FAULTS:
        assert judge(replace(EMPTY, fault=fault, states_checked=1)).fault == fault


def test_an_end_with_1_needs_a_number_where_words_are_said() -> None:
    """As in the explorer: 1 is also how Python ends after a traceback."""
    silent = read_exit(Completed(("check",), 1, b"", b"", 0.0), ())
    assert silent is not None and silent.lost == 1
    counted = read_exit(Completed(("check",), 1, b"3 rows\n", b"warning\n", 0.0), ())
    assert counted is not None and counted.lost == 3
    for said in ((b"", b"Traceback\n"), (b"rows are gone\n", b"")):
        with pytest.raises(RunFailure, match="did not say how much is lost"):
            read_exit(Completed(("check",), 1, *said, 0.0), ())
