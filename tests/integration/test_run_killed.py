"""``kill -9`` of real ``diskproof run``s at 24 random moments: nothing lost, doubled, left.

Requires fio, qemu-utils and qemu-system-common (setup/packages-demo.txt).
"""

import os
import random
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from diskproof.process.start import Process
from diskproof.store import open_store
from support.commands import diskproof, left_behind, start_diskproof, write_study

STUDIES, KILLS = 3, 8
STUDY = """
name = "killed"
workloads = ["sync-write-4k"]
[backings.here]
path = "images"
[factors]
frontend = ["host", "daemon"]
cache = ["none", "unsafe"]
[protocol]
blocks = 100
size = "16MiB"
runtime = "1s"
ramp = "0s"
"""
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
    study = write_study(folder, STUDY)
    known: list[str] = []
    for _ in range(KILLS):
        (folder / "log").unlink(missing_ok=True)
        with start_diskproof("run", study, cwd=folder) as running:
            await_runs(running, moments.choice((0, 0, 1, 1, 2)))
            assert running.wait(moments.uniform(0.0, 1.5)) is None, running.read_log().decode()
            os.kill(running.pid, signal.SIGKILL)
            assert running.wait(30) == -signal.SIGKILL
            told = runs_told(running)
        known = check_store(folder, known, told)
    shown = diskproof("run", study, "--budget", "1s", "--quiet", cwd=folder)
    assert shown.returncode in (0, 1), shown.error_text  # 1: too little time for any run
    assert left_behind(folder) == []
    return len(known)


def runs_told(running: Process) -> list[int]:
    return [int(number) for number in TOLD.findall(running.read_log().decode())]


def await_runs(running: Process, count: int) -> None:
    while len(runs_told(running)) < count:
        assert running.wait(0.05) is None, running.read_log().decode()


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
