"""Verdicts that mounted states share, and when they do not."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diskproof.crash.writers.same_tree import FIRST, ONE_OF, Verdicts, find_key

ASKED = 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tree, and promises beside it."""
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "file").write_text("content")
    (tmp_path / "data" / "link").symlink_to("deep/file")
    (tmp_path / "acks").write_text("1\n")
    return tmp_path / "data"


def counted(answers: Iterator[str]) -> tuple[Callable[[], str], list[str]]:
    """A check, and what it has said so far."""
    said: list[str] = []

    def check() -> str:
        said.append(next(answers))
        return said[-1]

    return check, said


def judge(verdicts: Verdicts, folder: Path, answers: Iterator[str]) -> tuple[list[str], int]:
    """What is said of the same so many times, and after how many checks."""
    check, said = counted(answers)
    told = [verdicts.judge(folder, folder.parent / "acks", check) for _ in range(ASKED)]
    return told, len(said)


def test_the_same_tree_is_checked_now_and_then(folder: Path) -> None:
    told, checks = judge(Verdicts(shares=True), folder, iter(lambda: "0", ""))
    assert set(told) == {"0"}
    assert checks == 1 + FIRST + (ASKED - 1) // ONE_OF


@pytest.mark.parametrize("said", ["1 3", "2 torn"])
def test_each_loss_is_of_a_check(folder: Path, said: str) -> None:
    told, checks = judge(Verdicts(shares=True), folder, iter(lambda: said, ""))
    assert set(told) == {said} and checks == ASKED


@pytest.mark.parametrize("first", ["0", "1 1", "2 torn"])
def test_a_check_that_says_another_word_of_the_same_is_told_of(folder: Path, first: str) -> None:
    """And each state is checked from then on."""
    verdicts = Verdicts(shares=True)
    told, checks = judge(verdicts, folder, iter([first, "1 2", *["0"] * ASKED]))
    assert told == [first, "unsteady 1 2", *["0"] * (ASKED - 2)]
    assert checks == ASKED and not verdicts.shares


def test_another_reason_is_the_same_verdict(folder: Path) -> None:
    verdicts = Verdicts(shares=True)
    told, _ = judge(verdicts, folder, (f"2 process {number} found it" for number in range(ASKED)))
    assert verdicts.shares and told[-1] == f"2 process {ASKED - 1} found it"


def test_nothing_is_shared_where_each_state_is_asked_for(folder: Path) -> None:
    assert judge(Verdicts(shares=False), folder, iter(lambda: "0", "")) == (["0"] * ASKED, ASKED)


def touch(path: Path) -> None:
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "deep" / "file").write_text("CONTENT"),
    "name": lambda folder: (folder / "deep" / "file").rename(folder / "deep" / "other"),
    "empty folder": lambda folder: (folder / "new").mkdir(),
    "mode": lambda folder: (folder / "deep" / "file").chmod(0o600),
    "time": lambda folder: touch(folder / "deep" / "file"),
    "second name": lambda folder: os.link(folder / "deep" / "file", folder / "second"),
    "promises": lambda folder: (folder.parent / "acks").write_text("1\n2\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_tree_or_promise_has_another_key(
    folder: Path, change: Callable[[Path], object]
) -> None:
    acks = folder.parent / "acks"
    before = find_key(folder, acks)
    assert before == find_key(folder, acks) and before is not None
    (folder / "deep" / "file").read_text()  # when it was read last is no part of it
    assert before == find_key(folder, acks)
    change(folder)
    assert find_key(folder, acks) not in (before, None)
