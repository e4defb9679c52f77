"""Checks of real programs: a state that equals another in all that was read is judged by it.

Requires root, /dev/fuse, git and the built native programs.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diskproof.process.native import require_native
from diskproof.process.start import run
from support.promising import Promising, files, git, lines, sqlite, start_promised
from support.recording import needs_fuse

pytestmark = needs_fuse
PROGRAMS = [
    (sqlite("delete", "full", 4), 200, False),
    (sqlite("delete", "full", 6), 600, True),
    (sqlite("wal", "normal", 6), 600, True),
    (git("default", 1), 120, False),
    (files(4, flush=False, folder=False), 120, True),
]
VERDICT = ("verdict", "lost", "age_ns", "state", "minimal", "missing", "covered", "unsteady")


def explore(
    recorded: Mapping[str, object],
    check: Mapping[str, object],
    states: int,
    verb: str = "explore",
    seconds: float = 300.0,
) -> Any:
    """The explorer's lines; one thread, so that all ways come to the same state first."""
    budget = {"states": states, "seconds": seconds, "minimise": 20}
    request = {"fault": "power", "sector": 512, "seed": 1, "threads": 1, "budget": budget}
    text = json.dumps({**recorded, **request, "check": check})
    argv = [str(require_native("diskproof-states")), verb]
    answer = run(argv, timeout=600, stdin=text.encode())
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize(("program", "states", "stays"), PROGRAMS, ids=lambda each: str(each)[:40])
def test_shared_verdicts_are_those_of_runs(
    tmp_path: Path, program: Promising, states: int, stays: bool
) -> None:
    with start_promised(program, tmp_path) as recorded:
        shared, alone = (
            explore(recorded, program.request(stays=stays, share_reads=share), states)[-1]
            for share in (True, False)
        )
    assert [shared[word] for word in VERDICT] == [alone[word] for word in VERDICT]
    for word in ("built", "checked", "losing"):
        assert shared["states"][word] == alone["states"][word]
    assert shared["states"]["equal"] > 0
    assert alone["states"]["equal"] == 0


LOOKS_ASIDE = """
import itertools, os, pathlib, random, sys, time
count = pathlib.Path({count!r})
before = int(count.read_text() or 0) if count.exists() else 0
count.write_text(str(before + 1))
{how}
sys.exit(1 if odd else 0)
"""
HOW = {
    "a clock": "odd = time.monotonic_ns() // 1000 % 2",
    "random numbers": "odd = random.random() < 0.5",
    "another file": "odd = before % 7 == 6",
    "after a time": "odd = before > 10",
}


@pytest.mark.parametrize("how", HOW)
def test_a_check_that_looks_aside_is_found_out(tmp_path: Path, how: str) -> None:
    """It reads nothing of a state, so that all of them are the same to it."""
    count = tmp_path / "count"
    check = (sys.executable, "-c", LOOKS_ASIDE.format(count=str(count), how=HOW[how]))
    program = replace(lines(8, flush=True), check=check)
    (tmp_path / "log").mkdir()
    with start_promised(program, tmp_path / "log") as recorded:
        summary = explore(recorded, program.request(), 200)[-1]
    assert summary["unsteady"], "it was believed"
    states = summary["states"]
    assert states["equal"] == 0
    assert int(count.read_text()) >= states["checked"]


OWN_SHARING = """
import os, sys
for state in sys.stdin:
    print("0" if "DISKPROOF_EACH_STATE" in os.environ else "unsteady 0", flush=True)
"""


def test_a_check_that_doubts_its_own_sharing_is_asked_anew_for_each_state(tmp_path: Path) -> None:
    check = (sys.executable, "-c", OWN_SHARING)
    program = replace(lines(8, flush=True), staying=check)
    with start_promised(program, tmp_path) as recorded:
        summary = explore(recorded, program.request(stays=True), 200)[-1]
    assert summary["unsteady"] and summary["verdict"] == "keeps"
    assert summary["states"]["equal"] == 0 < summary["states"]["checked"]


def test_causes_are_those_of_runs(tmp_path: Path) -> None:
    program = files(4, flush=False, folder=False)
    with start_promised(program, tmp_path) as recorded:
        shared, alone = (
            explore(recorded, program.request(stays=True, share_reads=share), 400, "causes", 120.0)
            for share in (True, False)
        )
    causes = [
        [(line["operations"], line["verdict"], line["cure"]) for line in lines if "number" in line]
        for lines in (shared, alone)
    ]
    assert causes[0] == causes[1] != []
    assert [lines[-1]["flushes"]["count"] for lines in (shared, alone)] == [0, 0]


def test_causes_of_a_check_that_looks_aside_are_looked_for_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = LOOKS_ASIDE.format(count=str(count), how=HOW["another file"])
    program = replace(lines(2, flush=True), check=(sys.executable, "-c", code))
    (tmp_path / "log").mkdir()
    with start_promised(program, tmp_path / "log") as recorded:
        said = explore(recorded, program.request(), 400, "causes", 60.0)[-1]
    assert said["type"] == "causes"
    assert int(count.read_text()) > said["checked"] > 0


def test_a_check_that_reads_nothing_is_run_a_few_times(tmp_path: Path) -> None:
    count = tmp_path / "count"
    check = ("sh", "-c", f"echo >> {count}")
    program = replace(lines(12, flush=True), check=check)
    (tmp_path / "log").mkdir()
    with start_promised(program, tmp_path / "log") as recorded:
        summary = explore(recorded, program.request(), 300)[-1]
    states = summary["states"]
    assert summary["verdict"] == "keeps"
    assert not summary["unsteady"]
    assert len(count.read_text()) == states["checked"] - states["equal"] < states["checked"]


def test_who_does_not_read_the_promises_is_judged_at_all_cuts_by_one(tmp_path: Path) -> None:
    """Beside the state, the promises are read as it is."""
    program = lines(12, flush=True)
    with start_promised(program, tmp_path) as recorded:
        passes, reads = (
            explore(recorded, replace(program, check=("sh", "-c", code)).request(), 300)[-1]
            for code in ("test -e lines", "test -e lines && cat $DISKPROOF_ACKNOWLEDGED")
        )
    assert passes["states"]["checked"] == reads["states"]["checked"]
    assert passes["states"]["equal"] > reads["states"]["equal"]


SEES_ITSELF = """
import os, sys
from pathlib import Path
said = len(os.listdir("."))  # the kernel keeps this list and the next bytes
is_there = Path("lines").exists()
kept = Path("lines").read_bytes() if is_there else b""
Path("own").write_text("one")
Path("own").rename("other")
Path("folder").mkdir()
for name, content in (("folder/a", b"a"), ("lines", kept + b"more")):
    Path(name).write_bytes(content)
assert len(os.listdir(".")) == said + 2 + (not is_there), os.listdir(".")
assert Path("lines").read_bytes() == kept + b"more"
with open("other") as held:
    os.unlink("other")
    assert held.read() == "one" and not Path("other").exists()
os.unlink("folder/a")
os.rmdir("folder")
assert sorted(os.listdir(".")) == ["lines"]
assert Path("nothing").exists() is False
"""


@pytest.mark.parametrize("shares", [False, True])
def test_a_check_sees_its_state_and_its_own_changes(tmp_path: Path, shares: bool) -> None:
    """Whatever the kernel keeps of one state, it is neither the next one's nor out of date."""
    tell = "import traceback\ntry:\n    exec(sys.argv[1])\nexcept BaseException:\n"
    tell = f"import sys\n{tell}    traceback.print_exc(); sys.exit(3)"
    program = replace(lines(6, flush=False), check=(sys.executable, "-c", tell, SEES_ITSELF))
    with start_promised(program, tmp_path) as recorded:
        said = explore(recorded, program.request(share_reads=shares), 60)[-1]
    assert said.get("verdict") == "keeps" and said["states"]["checked"] > 6, said
