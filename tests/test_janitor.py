"""Folders and processes of owners that really died. Needs /proc; mounts need root."""

import fcntl
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from diskproof.host import janitor
from diskproof.host.janitor import Swept, sweep
from diskproof.process.native import require_native
from diskproof.process.run_user import FOR_SERVICES, FORMER, OURS
from diskproof.process.start import Process, run, start_process

OWNER = """
import os, subprocess, sys, time
from pathlib import Path
from diskproof.backings import NO_CONSENT, start_disk_dir
from diskproof.records import BackingSpec
with start_disk_dir(BackingSpec("d", "directory", (("path", sys.argv[1]),)), NO_CONSENT) as folder:
    (folder / "disk.qcow2").write_bytes(b"image")
    stray = subprocess.Popen(["sleep", "600"], cwd=folder, start_new_session=True)
    print(stray.pid, folder, flush=True)
    time.sleep(600)
"""


@contextmanager
def start_owner(directory: Path, log: Path) -> Iterator[tuple[Process, int, Path]]:
    """A real process that owns a run folder, and a child of it that would outlive it."""
    read, write = os.pipe()
    with os.fdopen(read) as told, os.fdopen(write, "wb") as tell:
        directory.mkdir(exist_ok=True)
        argv = [sys.executable, "-c", OWNER, str(directory)]
        with start_process(argv, name="owner", log=log, stdout=tell) as owner:
            tell.close()
            pid, folder = told.readline().split()
            try:
                yield owner, int(pid), Path(folder)
            finally:
                if is_alive(int(pid)):
                    os.kill(int(pid), signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def make_folder(directory: Path, name: str = "diskproof-run-x") -> Path:
    folder = directory / name
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "disk.raw").write_bytes(b"image")
    return folder


def test_a_living_owner_is_left_alone_a_killed_one_is_cleaned_up(tmp_path: Path) -> None:
    images = tmp_path / "images"
    with start_owner(images, tmp_path / "log") as (owner, stray, folder):
        assert sweep([images]) == ()
        assert (folder / "disk.qcow2").exists() and is_alive(stray)
        os.kill(owner.pid, signal.SIGKILL)
        assert owner.wait(60) == -signal.SIGKILL
        assert is_alive(stray)
        assert sweep([images]) == (Swept(folder, killed=(stray,)),)
        assert not folder.exists() and not is_alive(stray)
        assert sweep([images]) == ()


def test_a_process_that_merely_runs_elsewhere_is_spared(tmp_path: Path) -> None:
    make_folder(tmp_path)
    with start_process(
        ["sleep", "600"], name="bystander", log=tmp_path / "log", cwd=tmp_path
    ) as bystander:
        assert [swept.killed for swept in sweep([tmp_path])] == [()]
        assert bystander.poll() is None


def test_a_shell_on_a_terminal_is_spared(tmp_path: Path) -> None:
    """A person who looks into the folder is not a stray process of ours."""
    folder = make_folder(tmp_path)
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", f"cd '{folder}' && echo there && exec sleep 600"])
    try:
        assert b"there" in os.read(terminal, 100)
        assert sweep([tmp_path]) == (Swept(folder),)
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_links_and_foreign_things_stay(tmp_path: Path) -> None:
    images, elsewhere = tmp_path / "images", tmp_path / "elsewhere"
    images.mkdir()
    elsewhere.mkdir()
    target = make_folder(elsewhere)
    (images / "diskproof-run-link").symlink_to(target)
    (images / "diskproof-run-file").write_text("mine")
    make_folder(images, "my-diskproof-run-1")
    unlocked = images / "diskproof-run-unlocked"
    unlocked.mkdir()
    (unlocked / "precious").touch()
    linked = images / "diskproof-run-linked-lock"
    linked.mkdir()
    (linked / "lock").symlink_to(target / "lock")
    (images / "diskproof-run-lockdir" / "lock").mkdir(parents=True)
    before = sorted(images.rglob("*"))
    assert sweep([images, tmp_path / "missing", target / "disk.raw"]) == ()
    assert sorted(images.rglob("*")) == before
    assert (target / "disk.raw").exists()


def test_a_link_inside_is_removed_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").touch()
    folder = make_folder(tmp_path)
    (folder / "away").symlink_to(precious)
    assert sweep([tmp_path]) == (Swept(folder),)
    assert (precious / "data").exists()


def test_an_empty_folder_without_a_lock_goes_when_it_is_old(tmp_path: Path) -> None:
    folder = tmp_path / "diskproof-run-old"
    folder.mkdir()
    os.utime(folder, (1e9, 1e9))
    assert sweep([tmp_path]) == (Swept(folder),)


def test_a_directory_where_a_folder_is_being_made_is_left_to_the_next_sweep(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    assert sweep([tmp_path]) == ()
    os.close(handle)
    assert sweep([tmp_path, tmp_path]) == (Swept(folder),)


KILLED_SWEEP = """
import os, signal, sys
from pathlib import Path
from diskproof.host.janitor import sweep
left = int(sys.argv[2])
def kill_at_last(frame, event, called):
    global left
    if event == "c_call" and called in (os.unlink, os.rmdir):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(kill_at_last)
sweep([Path(sys.argv[1])])
"""


def test_what_a_killed_sweep_leaves_goes_with_the_next(tmp_path: Path) -> None:
    """Killed before its first, second, ... removal: none leaves a folder that is nobody's."""
    for removals in range(100):
        folder = make_folder(tmp_path)
        for name in "ab":
            (folder / name / "deeper").mkdir(parents=True)
            (folder / name / "image").touch()
        argv = [sys.executable, "-c", KILLED_SWEEP, str(tmp_path), str(removals)]
        killed = run(argv, timeout=60, check=False).returncode == -signal.SIGKILL
        assert folder.exists() == killed
        sweep([tmp_path])
        assert list(tmp_path.iterdir()) == []
        if not killed:
            break
    assert removals == 9  # three of each folder, the image, the lock, the folder itself


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount and give files away")
def test_mounts_and_other_users_folders_stay(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    point = folder / "mnt 1"
    point.mkdir()
    run(["mount", "-t", "tmpfs", "none", str(point)], timeout=60)
    try:
        (point / "data").touch()
        (swept,) = sweep([tmp_path])
        assert swept.kept == f"{point} is mounted; unmount it first"
        assert (point / "data").exists() and (folder / "disk.raw").exists()
    finally:
        run(["umount", str(point)], timeout=60)
    os.chown(folder, 12345, 12345)
    assert sweep([tmp_path]) == ()
    os.chown(folder, FORMER, FORMER)
    assert sweep([tmp_path]) == (Swept(folder),)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
@pytest.mark.parametrize("user", [FORMER, OURS[7], FOR_SERVICES[7]])
def test_what_a_dead_runs_user_does_in_it_is_ended_also_that_of_versions_before(
    tmp_path: Path, user: int
) -> None:
    folder = make_folder(tmp_path)
    argv = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "sleep", "600"]
    with start_process(argv, name="stray", log=tmp_path / "log", cwd=folder) as stray:
        while not Path(f"/proc/{stray.pid}").stat().st_uid:
            assert stray.poll() is None
        assert sweep([tmp_path]) == (Swept(folder, killed=(stray.pid,)),)


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path)

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(janitor.shutil, "rmtree", refuse)
    assert sweep([tmp_path]) == (Swept(folder, "it cannot be removed: Operation not permitted"),)


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="mounts FUSE")
def test_a_recording_whose_recorder_is_dead_is_detached(tmp_path: Path) -> None:
    """The recorder and its guardian are killed, as a power cut of their cgroup would."""
    folder = make_folder(tmp_path)
    (folder / "files").mkdir()
    mount = folder / "recorded"
    mount.mkdir()
    argv = [str(require_native("diskproof-recordfs")), "--log", str(folder / "crash.log")]
    run([*argv, str(folder / "files"), str(mount)], timeout=30)
    started = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(mount) in (process.info["cmdline"] or ())
    ]
    for process in reversed(started):  # the guardian is the younger one
        handle = os.pidfd_open(process.pid)
        process.kill()
        assert select.select([handle], [], [], 60)[0]  # dead, even if nobody reaps it
        os.close(handle)
    assert str(mount) in Path("/proc/self/mountinfo").read_text()
    assert [swept.path for swept in sweep([tmp_path])] == [folder]
    assert not folder.exists()
    assert str(mount) not in Path("/proc/self/mountinfo").read_text()
