"""A copy over a share as steps, and what its ended steps say."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from diskproof.errors import RunFailure
from diskproof.process.start import run
from diskproof.study.tiles import Tile, TileGuest, TileWork
from diskproof.tiles.loads.copy import LOAD
from diskproof.tiles.steps import TileContext, TileStep, tile_steps

OPTIONS = (("files", "44500"), ("bytes", "670M"), ("depth", "5"), ("idle", "30s"))
GUESTS = tuple(TileGuest(name, "file-server", "servers", 1, 1, 1) for name in ("a", "file-b"))
WORK = TileWork("copy", "copy", "a", "file-b", OPTIONS, timeout=100.0)
SMB = TileContext(Tile("files", "", GUESTS, (WORK,)), "smb", Fraction(1, 200))
SHARES = (SMB, replace(SMB, share="nfs"))
SECONDS = {"copy.make": 9.0, "copy.there": 3.0, "copy.back": 1.0, "copy.check-there": 7.0}
SAID = {"files": 222, "bytes": 4 << 20, "wrong": 0}


def names(steps: tuple[TileStep, ...], phase: str) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(step.name, step.guest, step.after) for step in steps if step.phase == phase]


@pytest.mark.parametrize("context", SHARES, ids=lambda context: context.share)
def test_there_a_rest_and_back(context: TileContext) -> None:
    steps = tile_steps(context)
    assert names(steps, "setup") == [
        ("a.disk", "a", ()),
        ("a.serve", "a", ("a.disk",)),
        ("file-b.disk", "file-b", ()),
        ("file-b.serve", "file-b", ("file-b.disk",)),
        ("copy.make", "a", ("a.serve",)),
    ]
    assert names(steps, "load") == [
        ("copy.there", "a", ()),
        ("copy.rest", "a", ("copy.there",)),
        ("copy.back", "a", ("copy.rest",)),
    ]
    assert {(name, guest) for name, guest, _ in names(steps, "check")} == {
        ("copy.check-there", "file-b"),
        ("copy.check-back", "a"),
    }
    (rest,) = [step for step in steps if not step.argv]
    assert rest.idle == pytest.approx(0.15)


def test_all_of_it_shrinks_but_no_level_of_folders_is_empty() -> None:
    make, *checks = [step.argv[-3:] for step in LOAD.steps(WORK, SMB) if step.phase != "load"]
    assert make == ("--files=222", "--bytes=3512730", "--depth=5")
    assert checks == [make, make]
    smallest = LOAD.steps(WORK, replace(SMB, scale=Fraction(1, 10**6)))[0]
    assert smallest.argv[-3:] == ("--files=5", "--bytes=703", "--depth=5")


@pytest.mark.parametrize("context", SHARES, ids=lambda context: context.share)
def test_scripts_are_ones(context: TileContext) -> None:
    scripts = [step.argv[2] for step in tile_steps(context) if step.argv[:2] == ("sh", "-ec")]
    assert len(scripts) == 7
    for script in scripts:
        run(["sh", "-n", "-c", script], timeout=10)
    there = next(step for step in LOAD.steps(WORK, context) if step.name == "copy.there")
    assert "$HOST_FILE_B" in there.argv[2]


def test_copies_between_the_same_ends_do_not_meet() -> None:
    other = replace(WORK, name="copy2")
    ours, theirs = (
        {word for step in LOAD.steps(work, SMB) for word in step.argv if word.startswith("/")}
        for work in (WORK, other)
    )
    assert ours & theirs == {"/run/diskproof/diskproof-tree"}


def said(**changed: object) -> bytes:
    return json.dumps({**SAID, **changed}).encode()


def test_figures() -> None:
    outputs = {"copy.make": b"", "copy.check-there": said(), "copy.check-back": said()}
    told = {metric.name: metric.value for metric in LOAD.read(outputs, SECONDS)}
    assert told == {
        "seconds": 4.0,
        "throughput": 111.0,
        "bandwidth": 2.0,
        "copy_there": 3.0,
        "copy_back": 1.0,
    }


@pytest.mark.parametrize(
    ("back", "why"),
    [
        (said(wrong=1), "1 of 222 files"),
        (said(files=0), "0 of 0 files"),
        (said(files=221), "not both compared"),
        (said(bytes=1e999), "does not say"),
        (b"[" * 100_000, "does not say"),
        (b"[]", "does not say"),
        (b"", "does not say"),
    ],
)
def test_a_wrong_copy_fails(back: bytes, why: str) -> None:
    outputs = {"copy.check-there": said(), "copy.check-back": back}
    with pytest.raises(RunFailure, match=why) as caught:
        LOAD.read(outputs, SECONDS)
    assert caught.value.kind == "workload"


def test_a_copy_that_nobody_compared_fails() -> None:
    with pytest.raises(RunFailure, match="not both compared"):
        LOAD.read({"copy.check-there": said()}, SECONDS)
