"""What is seen of a measurement that runs, what Ctrl-C makes of it, and that it goes on from there.

Requires what ``test_verbs.py`` requires.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import pytest

from support.recording import needs_fuse
from support.verb_places import STUDY, Call, Place
from support.verbs import WRITES, find_verb_options

pytestmark = [needs_fuse, pytest.mark.long]
CRASH = (
    STUDY.replace('["host", "daemon"]', '"daemon"\ncache = ["none", "writeback"]')
    .replace("records = 16", "records = 64\nfaults = ['qemu-kill', 'power']")
    .replace("states = 300", "states = 1000000")
    .replace('explore_seconds = "1s"', 'explore_seconds = "3s"')
)
WRITER = """
[ -p "$1/gate" ] && read never <"$1/gate"
for number in 1 2 3; do
    echo $number >$number && sync $number . && echo $number
done
"""


@dataclass(frozen=True)
class Measurement:
    """``begun`` stands in the log when it is in the middle of something; without it a writer's
    process says so. Names have blanks, which a pasted command must bear. ``again`` goes on, else
    the call itself; ``makes`` are the files that it leaves."""

    name: str
    call: str
    begun: str = ""
    resumes: bool = True
    again: str = ""
    makes: tuple[str, ...] = ()


MEASUREMENTS = (
    Measurement(
        "quick",
        "quick 'a folder' --for qemu --budget 1m",
        "[1/",
        again="run quick-a-folder.toml",
        makes=("quick-a-folder.toml",),
    ),
    Measurement("run", "run 'a study.toml'", "[1/4, "),
    Measurement("crash", "crash 'a crash.toml'", "[2/4, "),
    Measurement(
        "crash --writer",
        "crash --writer 'sh HERE/writer.sh HERE' --check true --seed 3 --budget 12s 'a folder'",
    ),
    Measurement("crash flushes", "crash flushes guests.toml", "[1/1] ", resumes=False),
    Measurement("tiles", "tiles tiles.toml --runs 2", "[1/2, "),
)
BY_WORDS = {"crash": "crash study", "crash --writer": "crash study"}
STORE = ["--store", "a store.sqlite"]


def test_every_verb_that_measures_is_tried() -> None:
    tried = {BY_WORDS.get(each.name, each.name) for each in MEASUREMENTS}
    assert tried == {name for name in WRITES if "--store" in find_verb_options(name)}


@pytest.fixture
def stage(place: Place) -> Place:
    (place.here / "a study.toml").write_text(STUDY)
    (place.here / "a crash.toml").write_text(CRASH)
    (place.here / "a folder").mkdir()
    os.mkfifo(place.here / "gate")
    (place.here / "writer.sh").write_text(WRITER)
    return place


def argv(place: Place, each: Measurement) -> list[str]:
    return on(each.call, place)


def on(call: str, place: Place) -> list[str]:
    return [*shlex.split(call.replace("HERE", str(place.here))), *STORE]


@pytest.mark.parametrize("each", MEASUREMENTS, ids=lambda each: each.name)
def test_it_is_seen_alone_and_goes_on_after_ctrl_c(stage: Place, each: Measurement) -> None:
    before = stage.seen()
    with start(stage, argv(stage, each)) as child:
        wait_until_begun(stage, each, child)
        with stopped(child):  # it takes as long as we look
            is_seen_by_status(stage, child.pid)
            nothing_runs_beside_it(stage, child.pid)
            follows_until_ctrl_c_or_nobody_reads(stage)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    log = (stage.here / "log").read_text()
    Call(130, "", log).assert_no_traceback()
    makes = ("log", "a store.sqlite", *each.makes)
    assert stage.left(before, makes) == ()
    if not each.resumes:
        assert "To go on" not in log
        return
    (stage.here / "gate").unlink()
    (command,) = re.findall(r"To go on: (diskproof .+)", log)
    assert shlex.split(command)[1:] == on(each.again or each.call, stage)
    done = stage.shell(command)
    assert done.code == 0, done.err
    done.assert_no_traceback()
    assert done.left == ()
    assert [row["state"] for row in status(stage)] == ["done"] * len(status(stage))


@contextmanager
def start(place: Place, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """What it tells goes to the file ``log``."""
    with (place.here / "log").open("wb") as log:
        with place.start(words, stdout=subprocess.DEVNULL, stderr=log) as child:
            try:
                yield child
            finally:
                child.kill()


def wait_until_begun(place: Place, each: Measurement, child: subprocess.Popen[bytes]) -> None:
    log = place.here / "log"
    begun: Callable[[], bool] = (
        (lambda: each.begun in log.read_text()) if each.begun else (lambda: has_writer(child.pid))
    )
    while not begun():
        assert child.poll() is None, log.read_text()
        time.sleep(0.02)


def has_writer(pid: int) -> bool:
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if "sh" in process.name() and any("writer.sh" in word for word in process.cmdline()):
                return True
        except psutil.NoSuchProcess:
            continue
    return False


@contextmanager
def stopped(child: subprocess.Popen[bytes]) -> Iterator[None]:
    child.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        child.send_signal(signal.SIGCONT)


def status(place: Place) -> list[dict[str, object]]:
    call = place.call(["status", "--json", *STORE])
    assert call.code == 0, call.err
    rows: list[dict[str, object]] = json.loads(call.out)
    return rows


def is_seen_by_status(place: Place, pid: int) -> None:
    running = [row for row in status(place) if row["state"] == "running"]
    assert [row["pid"] for row in running] == [pid]
    assert str(pid) in place.call(["status", *STORE]).out


def nothing_runs_beside_it(place: Place, pid: int) -> None:
    for other in MEASUREMENTS:
        call = place.call(argv(place, other))
        assert call.code == 3 and str(pid) in call.err, (other.name, call.err)
        assert len(call.err.splitlines()) <= 3 and call.left == ()


def follows_until_ctrl_c_or_nobody_reads(place: Place) -> None:
    follow = ["status", "--follow", "--json", *STORE]
    with place.start(follow) as child:
        assert child.stdout is not None and json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    Call(130, out.decode(), err.decode()).assert_no_traceback()
    with place.start(follow) as child:
        assert child.stdout is not None and child.stderr is not None
        assert json.loads(child.stdout.readline())
        child.stdout.close()
        assert child.wait(60) == 0 and child.stderr.read() == b""


@pytest.mark.parametrize(
    "words",
    [
        ["sync", "drop", "--"],
        ["sync", "trace", "--"],
        ["sync", "trace", "--json", "--"],
        ["nocache", "--"],
    ],
    ids=" ".join,
)
def test_ctrl_c_is_the_commands_own_behind_a_native_program(place: Place, words: list[str]) -> None:
    before = place.seen()
    program = "import time; print('begun', flush=True); time.sleep(60); print('never')"
    command = [sys.executable, "-c", program]
    with place.start([*words, *command]) as child:
        assert child.stdout is not None and child.stdout.readline() == b"begun\n"
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does, to all in the foreground
        out, err = child.communicate(timeout=60)
    assert child.returncode in (130, -signal.SIGINT) and out == b""
    assert place.left(before) == ()


@pytest.mark.parametrize("options", [[], ["--json"], ["--csv"]], ids=" ".join)
def test_ctrl_c_ends_a_watch_well(place: Place, options: list[str]) -> None:
    with place.start(["monitor", "-c", *options, "0.05"]) as child:
        assert child.stdout is not None and child.stdout.readline()
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err.decode()
    if options == ["--json"]:
        assert all(json.loads(line) for line in out.splitlines())
