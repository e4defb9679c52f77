"""``kill -9`` of real ``diskproof run``s at 24 random moments: nothing lost, doubled, left.

Requires fio, qemu-utils and qemu-system-common (setup/packages-demo.txt).
"""

import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diskproof.store import open_store
from support.commands import STUDY, as_host, diskproof, left_behind, write_study
from support.forked import Forked

pytestmark = pytest.mark.long

STUDIES, KILLS = 3, 8
KILLED = STUDY.replace("blocks = 2", "blocks = 100").replace(
    'format = ["raw", "qcow2"]', 'cache = ["none", "unsafe"]'
)
TOLD = re.compile(r"^\[(\d+)/300, ", re.MULTILINE)


def test_no_finished_run_is_lost_or_doubled(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(STUDIES)]
    with ThreadPoolExecutor(STUDIES) as pool:
        known = list(pool.map(kill_again_and_again, folders))
    assert sum(known) >= STUDIES * KILLS / 2, "too few runs ended for the test to mean anything"


def kill_again_and_again(folder: Path) -> int:
    """One study, killed and resumed; gives how many of its runs were stored."""
    folder.mkdir()
    moments = random.Random(f"20121112 {folder.name}")
    study, log = write_study(folder, KILLED), folder / "log"
    argv = [sys.executable, "-m", "diskproof", "run", str(study)]
    known: list[str] = []
    for number in range(KILLS):
        start = Forked if number else subprocess.Popen  # one of them has yet to import everything
        with log.open("wb") as told:
            running = start(argv, cwd=folder, env=as_host(folder), start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=told, stderr=told)  # fmt: skip
        with running:
            await_runs(running, log, moments.choice((0, 0, 1, 1, 2)))
            # Also at once: what was told is stored by then.
            time.sleep(moments.choice((0.0, moments.uniform(0.0, 1.5))))
            assert running.poll() is None, log.read_text()
            running.kill()
            assert running.wait(30) == -signal.SIGKILL
        known = check_store(folder, known, runs_told(log))
    shown = diskproof("run", study, "--budget", "1s", "--quiet", cwd=folder)
    assert shown.returncode in (0, 1), shown.error_text  # 1: too little time for any run
    assert left_behind(folder) == []
    return len(known)


def runs_told(log: Path) -> list[int]:
    return [int(number) for number in TOLD.findall(log.read_text())]


def await_runs(running: subprocess.Popen[bytes], log: Path, count: int) -> None:
    while len(runs_told(log)) < count:
        assert running.poll() is None, log.read_text()
        time.sleep(0.002)


def check_store(folder: Path, known: list[str], told: list[int]) -> list[str]:
    """The ids of the stored runs: all that were there, all that were announced, each once."""
    if not (folder / "diskproof.sqlite").exists():
        assert not told
        return []
    with open_store(str(folder / "diskproof.sqlite")) as store:
        runs = [run for study in store.studies() for run in store.runs(study.id)]
        for run in runs[len(known) :]:
            assert store.run(run.id).artefacts, "a run is stored whole"
    ids = [run.id for run in runs]
    assert ids[: len(known)] == known
    assert len(ids) >= max(told, default=0)
    assert len({(run.block, run.cell.id) for run in runs}) == len(runs)
    return ids
