"""``kill -9`` of a real ``diskproof run`` at 50 random moments: nothing lost, doubled, left.

Requires fio, qemu-utils and qemu-system-common (setup/packages-demo.txt).
"""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

from commands import diskproof, left_behind, start_diskproof, write_study
from diskproof.store import open_store

KILLS = 50
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
    moments = random.Random(20121112)
    study = write_study(tmp_path, STUDY)
    known: list[str] = []
    for _ in range(KILLS):
        (tmp_path / "log").unlink(missing_ok=True)
        with start_diskproof("run", study, cwd=tmp_path) as running:
            assert running.wait(moments.uniform(0.3, 5.0)) is None, running.read_log().decode()
            os.kill(running.pid, signal.SIGKILL)
            assert running.wait(30) == -signal.SIGKILL
            told = [int(number) for number in TOLD.findall(running.read_log().decode())]
        known = check_store(tmp_path, known, told)
    assert len(known) >= KILLS / 2, "too few runs ended for the test to mean anything"
    shown = diskproof("run", study, "--budget", "1s", "--quiet", cwd=tmp_path)
    assert shown.returncode == 0, shown.error_text
    assert left_behind(tmp_path) == []


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
