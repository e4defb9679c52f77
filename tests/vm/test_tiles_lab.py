"""Whole runs of small tiles: what is known of one that went well, and of one that did not.

Requires the built guest (``diskproof guest build``), qemu-system-x86_64, qemu-img, the sampler.
"""

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from diskproof.host import ksm
from diskproof.host.janitor import sweep
from diskproof.process.start import start_process
from diskproof.records import Failure
from diskproof.records.tiles import TileRun
from diskproof.tiles.engine import PhaseProgress
from support.running import mounted
from support.tile_runs import LONE, PAIR, execute

QEMU = "qemu-system-x86_64"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def failure_of(run: TileRun) -> Failure:
    """Of a run that has no figures and keeps what its guest said."""
    assert run.failure is not None and run.works == ()
    assert {"audit.json", "qemu.argv.json"} <= {artefact.name for artefact in run.artefacts}
    return run.failure


def read_ksm() -> dict[str, str]:
    return {name: (ksm.FOLDER / name).read_text() for name in ksm.ON}


@pytest.fixture
def free_ksm() -> None:
    """KSM is the host's, and one run's at a time: tests of another checkout may have it."""
    handle, deadline = os.open(ksm.FOLDER, os.O_RDONLY), time.monotonic() + 900
    try:
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < deadline, "another run has KSM"
            time.sleep(0.2)
    finally:
        os.close(handle)


def execute_merged(images: Path, told: list[PhaseProgress]) -> TileRun:
    """PAIR, which rests at its end until the kernel has come to merging: on a busy host a pass over
    the guests takes a while."""
    for rest in (0, 20, 120):
        told.clear()
        pair = PAIR.replace("exec fio", "fio").replace(
            "/tmp/job\n'''", f"/tmp/job && sleep {rest}\n'''"
        )
        assert f"sleep {rest}" in pair
        run = execute(images, pair, on_step=told.append, ksm="on")
        if run.failure or any(use.ksm_bytes for use in run.uses):
            break
    return run


@needs_root
@pytest.mark.usefixtures("free_ksm")
def test_two_guests_work_together_and_all_is_told(tmp_path: Path) -> None:
    before = read_ksm()
    told: list[PhaseProgress] = []
    run = execute_merged(tmp_path / "images", told)
    assert run.failure is None
    assert read_ksm() == before
    assert [step.step for step in run.steps if step.phase != "setup"] == [
        "serve.run",
        "write.run",
        "serve.check",
    ]
    assert all(step.status == 0 for step in run.steps)
    ended = {step.step: step.ended for step in run.steps}
    began = {step.step: step.started for step in run.steps}
    assert ended["server.sync"] < 0 <= began["serve.run"] < ended["serve.run"]
    assert ended["serve.run"] <= began["write.run"] < ended["write.run"] <= run.seconds
    assert [(work.work, work.guest) for work in run.works] == [
        ("serve", "server"),
        ("write", "client"),
    ]
    check_figures(run)
    assert sum(use.ksm_bytes for use in run.uses) > 0
    check_settings(run)
    assert told[-1] == PhaseProgress("check", (), 1, 1)
    phases = [name for name, _ in run.phases]
    assert phases[-6:] == ["read_back", "setup", "sync", "load", "check", "stop"]


def check_figures(run: TileRun) -> None:
    for work in run.works:
        (step,) = [step for step in run.steps if step.step == f"{work.work}.run"]
        assert work.value("seconds") == pytest.approx(step.ended - step.started)
    for use in run.uses:
        assert 0 < use.cpu_seconds < 2 * run.seconds
        assert 64 << 20 < use.memory_bytes < 1 << 30
    series = {each.name: each for each in run.series}
    assert {"cpu.user", "cpu.iowait", "ksm.saved", "process.cpu", "disk.write"} <= series.keys()
    assert -1 < series["cpu.user"].times[0] < series["cpu.user"].times[-1] < run.seconds + 1


def check_settings(run: TileRun) -> None:
    checks = {check.name: check for check in run.checks}
    assert all(check.ok for check in checks.values())
    assert len(checks) == len(run.checks), "each is named by its guest"
    assert checks["ksm: run"].effective == "1"
    for guest in ("server", "client"):
        assert checks[f"tile 1 {guest}: memory"].effective == str(192 << 20)
        assert checks[f"tile 1 {guest}: guest: write_cache"].effective == "write back"
        assert checks[f"tile 1 {guest}: O_DIRECT"].effective == "off"


def find_qemus() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if each.name() == QEMU]


def test_a_qemu_that_dies_under_load_is_a_stored_failure(tmp_path: Path) -> None:
    def kill(progress: PhaseProgress) -> None:
        if progress.phase == "load":
            find_qemus()[0].kill()

    run = execute(tmp_path / "images", LONE, on_step=kill)
    failure = failure_of(run)
    assert failure.kind == "qemu"
    assert failure.what == "tile 1 writer, load, step write.run: QEMU was killed by signal 9"
    assert [step.status for step in run.steps if step.step == "write.run"] == [None]
    assert run.seconds > 0


@needs_root
def test_the_hosts_disk_fills_up_under_load(tmp_path: Path) -> None:
    folder = tmp_path / "small"

    def fill(progress: PhaseProgress) -> None:
        if progress.phase != "load":
            return
        with (folder / "other").open("wb") as other:
            for _ in range(100):
                stat = os.statvfs(folder)
                with suppress(OSError):  # the guest has written meanwhile
                    left = stat.f_bavail * stat.f_frsize - (8 << 20)
                    os.posix_fallocate(other.fileno(), 0, left)
                    break

    with mounted(folder, "-t", "tmpfs", "-o", "size=96M", "diskproof-test"):
        failure = failure_of(execute(folder / "images", LONE, on_step=fill))
    assert failure.kind == "space"
    assert failure.what.startswith("tile 1 writer, load, step write.run: ")
    assert "full" in failure.what + failure.why


def test_more_tiles_than_fit_into_memory_are_refused_with_the_sum(tmp_path: Path) -> None:
    tiles = psutil.virtual_memory().total // (192 << 20) + 1
    run = execute(tmp_path / "images", LONE, tiles=tiles)
    assert run.failure is not None and run.failure.kind == "memory"
    assert f"{tiles} tiles do not fit" in run.failure.what
    assert f"{tiles} x" in run.failure.why and "available" in run.failure.why
    assert run.phases == (), "nothing was started"


OWNER = """
import sys
from pathlib import Path
from support.tile_runs import LONE, make_cell, make_lab
from diskproof.guest.ours import boot
launch = boot.start_qemu

def start_qemu(*arguments, **options):
    started = launch(*arguments, **options)
    print("boot", flush=True)
    return started

boot.start_qemu = start_qemu
lab = make_lab(Path(sys.argv[1]), LONE)
show = lambda progress: print(progress.phase, flush=True)
print(lab.execute(make_cell(ksm="on"), 1, 1, show).failure, flush=True)
"""


def read_cards() -> list[str]:
    """Those of the host, but for what another test makes (``dp..``)."""
    names = (card.name for card in Path("/sys/class/net").iterdir())
    return sorted(name for name in names if not name.startswith("dp"))


def find_working(folder: Path) -> list[psutil.Process]:
    """Processes, ours apart, that work below a folder; QEMU's own user may be another."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(folder) and process.pid != os.getpid():
                found.append(process)
    return found


@needs_root
@pytest.mark.usefixtures("free_ksm")
@pytest.mark.parametrize("moment", ["boot", "load"])
def test_a_killed_run_leaves_nothing(tmp_path: Path, moment: str) -> None:
    """Processes go with it; folders, disks and settings with the next sweep."""
    images, cards = tmp_path / "images", read_cards()
    try:
        working = kill_owner(images, tmp_path / "log", moment)
        assert working
        assert psutil.wait_procs(working, timeout=30)[1] == []
        (note,) = images.glob(f"diskproof-run-*/{ksm.NOTE}")
        former = ksm.read_note(note.parent)
        assert read_ksm()["run"] == "1\n"
    finally:
        swept = sweep([images])  # a host must not keep merging because a test failed
    assert len(swept) == 2 and all(each.kept == "" for each in swept), swept
    assert list(images.glob("diskproof-*")) == [] and find_working(images) == []
    assert all(check.ok for check in ksm.check_ksm(ksm.FOLDER, former))
    assert read_cards() == cards


def kill_owner(images: Path, log: Path, moment: str) -> list[psutil.Process]:
    """Start a run and kill it at a moment; gives what worked for it then."""
    read, write = os.pipe()
    with os.fdopen(read) as told, os.fdopen(write, "wb") as tell:
        argv = [sys.executable, "-c", OWNER, str(images)]
        with start_process(argv, name="owner", log=log, stdout=tell) as owner:
            tell.close()
            said = []
            while moment not in said and (line := told.readline()):
                said.append(line.strip())
            assert moment in said, (said, owner.read_log().decode())
            working = find_working(images)
            os.kill(owner.pid, signal.SIGKILL)
            assert owner.wait(30) == -signal.SIGKILL
    return working
