"""The words for what a crash took, and the picture of it: by operation and path."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.crash.timeline import BEFORE, MAX_EVENTS, make_timeline
from diskproof.records.operations import (
    Operation,
    absences,
    merged,
    operation_words,
    read_operation,
)

MKDIR = Operation(1, "mkdir", ".git/objects/c8", end=1_000_000, presence="there")
WRITE = Operation(2, "write", "conf.tmp", "", 0, 12_288, end=2_000_000, presence="there")
RENAME = Operation(3, "rename", "conf.tmp", "conf", end=3_000_000, presence="there")
FLUSH = Operation(4, "fsync", ".", end=4_000_000)
PROMISE = Operation(5, "acknowledge", "ledger a 7", end=5_000_000)
ALL = (MKDIR, WRITE, RENAME, FLUSH, PROMISE)


def without(*gone: Operation, presence: str = "missing") -> list[Operation]:
    return [replace(each, presence=presence) if each in gone else each for each in ALL]


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (MKDIR, "mkdir .git/objects/c8"),
        (WRITE, "12,288 bytes of conf.tmp at 0"),
        (RENAME, "rename conf.tmp -> conf"),
        (replace(RENAME, kind="link"), "link conf.tmp -> conf"),
        (replace(MKDIR, kind="unlink"), "unlink .git/objects/c8"),
        (replace(WRITE, kind="zero", offset=4096), "12,288 zeros of conf.tmp at 4,096"),
        (replace(WRITE, kind="truncate"), "truncate conf.tmp to 12,288 bytes"),
        (replace(WRITE, kind="setattr"), "mode or owner of conf.tmp"),
        (replace(WRITE, kind="setxattr", to="user.a"), "attribute user.a of conf.tmp"),
        (FLUSH, "fsync ."),
    ],
)
def test_an_operation_has_its_paths(operation: Operation, words: str) -> None:
    assert operation_words(operation) == words


def test_what_is_missing_is_told_with_the_name_that_gives_it_away() -> None:
    there = "rename conf.tmp -> conf is there, 12,288 bytes of conf.tmp at 0 are"
    assert list(absences(without(MKDIR))) == ["mkdir .git/objects/c8 is missing"]
    assert list(absences(without(WRITE))) == [f"{there} not"]
    assert list(absences(without(WRITE, presence="torn"))) == [f"{there} torn"]
    assert list(absences(without(RENAME, presence="torn"))) == [
        "rename conf.tmp -> conf is there, and the old name is, too"
    ]
    assert list(absences(without(WRITE, RENAME))) == [
        "12,288 bytes of conf.tmp at 0 are missing",
        "rename conf.tmp -> conf is missing",
    ]


def test_a_file_is_followed_through_its_renames() -> None:
    further = Operation(6, "rename", "conf", "conf.old", presence="there")
    (told,) = absences([*without(WRITE), further])
    assert told.startswith("rename conf -> conf.old is there")


def test_the_picture_has_names_and_paths() -> None:
    events = make_timeline(without(MKDIR), 5, [7])
    assert [(each.kind, each.state, each.text) for each in events] == [
        ("name", "missing", "mkdir .git/objects/c8"),
        ("write", "kept", "12,288 bytes of conf.tmp at 0"),
        ("name", "kept", "rename conf.tmp -> conf"),
        ("flush", "", "fsync ."),
        ("acknowledge", "lost", "ledger a 7"),
        ("cut", "", ""),
    ]
    assert [each.seconds for each in events] == [0.0, 0.001, 0.002, 0.003, 0.004, 0.004]


def test_a_long_picture_begins_shortly_before_the_loss_and_lacks_its_middle() -> None:
    many = [replace(WRITE, sequence=n, end=n, presence="there") for n in range(1, 400)]
    many[99] = replace(many[99], presence="missing")
    events = make_timeline(many, 399)
    assert len(events) == MAX_EVENTS and events[-1].kind == "cut"
    assert [each.state for each in events[: BEFORE + 1]] == ["kept"] * BEFORE + ["missing"]
    assert make_timeline([], 0) == ()


def test_of_a_ledger_each_promise_is_kept_or_lost() -> None:
    promises = [replace(PROMISE, sequence=n, end=n, path=f"ledger 00 {n}") for n in (1, 2)]
    late = replace(WRITE, sequence=3, presence="")
    assert [each.state for each in make_timeline([*promises, late], 2, (2,))] == [
        "kept",
        "lost",
        "",
    ]
    assert [each.state for each in make_timeline(promises, 2)] == ["", "", ""]


PRESENCES = ("", "there", "missing", "torn")


@given(
    st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from(PRESENCES)), max_size=400), st.data()
)
def test_timelines_are_bounded_and_in_order(
    drawn: list[tuple[Operation, str]], data: st.DataObject
) -> None:
    many = [
        replace(each, sequence=n, end=n * 10**6, presence=presence)
        for n, (each, presence) in enumerate(drawn, 1)
    ]
    cut = data.draw(st.integers(0, len(many)))
    lost = data.draw(st.lists(st.integers(1, len(many) + 1), max_size=5))
    events = make_timeline(many, cut, lost)
    assert len(events) <= MAX_EVENTS + 1
    assert [each.seconds for each in events[:-1]] == sorted(e.seconds for e in events[:-1])
    if events:
        assert events[-1].kind == "cut"


def test_writes_that_follow_each_other_are_told_as_one() -> None:
    one, two = replace(WRITE, bytes=40), replace(WRITE, sequence=3, offset=40, bytes=1)
    (both,) = merged([one, two])
    assert (both.offset, both.bytes) == (0, 41)
    assert len(list(merged([two, one]))) == len(list(merged([one, RENAME, two]))) - 1 == 2
    assert operation_words(replace(WRITE, bytes=1)) == "1 byte of conf.tmp at 0"


def test_a_line_of_the_explorer_is_read() -> None:
    line = {
        "sequence": 3,
        "operation": "rename",
        "path": "a",
        "to": "b",
        "begin_ns": 1,
        "end_ns": 2,
    }
    assert read_operation(line) == Operation(3, "rename", "a", "b", begin=1, end=2)
    with pytest.raises(KeyError):
        read_operation({"sequence": 3})
