"""Litmus programs: how many there are, that they are the same each time, and that each can be done;
what a folder holds as text."""

import os
from collections import Counter
from pathlib import Path

import pytest

from support.litmus.bounded import all_of_one, of_one, of_two
from support.litmus.idioms import idioms
from support.litmus.operations import Litmus, perform
from support.litmus.others import others
from support.litmus.published import published
from support.litmus.tree_text import tree_text
from support.litmus.writeback import WRITEBACKS, writebacks_of

FLUSHES = ("fsync", "fdatasync", "sync")
MOST = 16
"""Operations of one program: every state of it can be built."""


def test_those_of_one_operation_are_as_many_as_in_the_paper() -> None:
    some = tuple(all_of_one())
    assert len(some) == 328
    kinds = Counter(each.name.split()[0] for each in some)
    assert kinds["fallocate"] == 2 * 5 * 3 * 4
    assert kinds["remove"] == kinds["unlink"] == 16
    assert len(of_one()) == 328 - kinds["remove"]
    assert len({each.name for each in of_one()}) == len(of_one())


def test_a_sample_of_two_operations_is_the_same_for_the_same_seed() -> None:
    sample = of_two(1000, 7)
    assert sample == of_two(1000, 7)
    assert sample != of_two(1000, 8)
    assert len({str(each.operations) for each in sample}) == 1000


def test_there_are_twelve_idioms_and_no_name_stands_twice() -> None:
    some = (*idioms(), *others(), *published(), *of_one(), *of_two(1000, 7))
    assert len(idioms()) == 12
    assert len({each.name for each in some}) == len(some)
    assert max(len(each.operations) for each in some) <= MOST


@pytest.mark.parametrize(
    "some", [idioms() + others(), published(), of_one(), of_two(200, 3)], ids=len
)
def test_each_operation_finds_what_it_needs(some: tuple[Litmus, ...], tmp_path: Path) -> None:
    for number, program in enumerate(some):
        folder = tmp_path / str(number)
        folder.mkdir()
        for operation in (*program.setup, *program.operations):
            # Of a flush this is all that could fail, and a disk is slow.
            if operation["do"] in FLUSHES:
                assert (folder / operation["path"]).exists(), program
            else:
                perform([operation], [folder], lambda number: None)


def test_each_write_has_a_letter_of_its_own() -> None:
    for program in (*published(), *of_one(), *of_two(200, 3)):
        fills = [each["fill"] for each in program.operations if "fill" in each]
        assert len(set(fills)) == len(fills)


def test_pages_are_written_back_by_themselves_where_there_are_any() -> None:
    bare = Litmus("bare", ({"do": "mkdir", "path": "A"},))
    written = Litmus("written", ({"do": "write", "path": "foo"},))
    assert writebacks_of(bare.operations, WRITEBACKS) == ("end", "each")
    assert writebacks_of(written.operations, WRITEBACKS) == WRITEBACKS
    assert writebacks_of(bare.operations, ("back",)) == ("back",)


def test_operations_are_acknowledged_one_by_one(tmp_path: Path) -> None:
    said: list[str] = []
    operations = [{"do": "creat", "path": "foo"}, {"do": "mkdir", "path": "foo"}]
    with pytest.raises(FileExistsError):
        perform(operations, [tmp_path], said.append)
    assert said == ["1"]


def test_a_tree_is_told_by_names_links_runs_and_attributes(tmp_path: Path) -> None:
    (tmp_path / "B").mkdir()
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "foo").write_bytes(b"A" * 5000 + bytes(3192) + b"B1")
    os.setxattr(tmp_path / "A" / "foo", "user.litmus", b"CCC")
    os.link(tmp_path / "A" / "foo", tmp_path / "B" / "bar")
    (tmp_path / "B" / "empty").touch()
    (tmp_path / "link").symlink_to("A/foo")
    assert tree_text(tmp_path).splitlines() == [
        "A directory",
        "A/foo file links=2 size=8194 A*5000,0*3192,B*1,x31*1 user.litmus=C*3",
        "B directory",
        "B/bar file links=2 same=A/foo size=8194 A*5000,0*3192,B*1,x31*1 user.litmus=C*3",
        "B/empty file links=1 size=0 -",
        "link symlink links=1 to=A/foo",
    ]
