"""recordfs for an ordinary user: fusermount3 mounts and unmounts, nobody else gets in.

Requires root (to become that user), /dev/fuse, fusermount3 and the built diskproof-recordfs.
"""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from diskproof.process.native import require_native
from support.crash_logs import check_same, read_log, read_tree, replay
from support.recording import (
    DEADLINE,
    Places,
    is_mounted,
    make_places,
    needs_fuse,
    start_recording,
    wait_until_unmounted,
)

pytestmark = needs_fuse

USER = 65534
DEVICE = Path("/dev/fuse")
BECOME = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
WORK = "set -e; echo data > f; sync f; mv f g; mkdir d; ln -s g d/s; echo done > .diskproof-ack"


@dataclass(frozen=True)
class Room:
    """Places of the user's own, and recordfs started as that user."""

    places: Places
    program: list[str]

    def do_in_mount(self, script: str) -> subprocess.CompletedProcess[bytes]:
        argv = [*BECOME, "sh", "-c", script]
        return subprocess.run(
            argv,
            cwd="/",
            env=dict(os.environ, HOME="/", M=str(self.places.mount)),
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )


@pytest.fixture
def device() -> Iterator[None]:
    """Open to all, as udev makes it; in a container without udev it may be root's alone. One test
    at a time: another would take it away."""
    with Path("/run/diskproof-tests-fuse").open("a") as one:
        flock(one, LOCK_EX)
        mode = stat.S_IMODE(DEVICE.stat().st_mode)
        DEVICE.chmod(0o666)
        try:
            yield
        finally:
            DEVICE.chmod(mode)


@pytest.fixture
def room() -> Iterator[Room]:
    """Pytest's own folders let nobody else in, nor may the folder of the program."""
    with tempfile.TemporaryDirectory(prefix="recordfs-user-") as name:
        folder = Path(name)
        places = make_places(folder)
        program = shutil.copy(require_native("diskproof-recordfs"), folder / "recordfs")
        (places.backing / "old").write_bytes(b"old")
        for path in (folder, places.backing, places.mount, places.backing / "old"):
            os.chown(path, USER, USER)
        yield Room(places, [*BECOME, str(program)])


def test_an_ordinary_user_records_through_fusermount3(device: None, room: Room) -> None:
    with start_recording(room.places, program=room.program) as recording:
        done = room.do_in_mount(f'cd "$M"; {WORK}')
        assert done.returncode == 0, done.stderr
        # The mount is its user's only: not even root looks in.
        with pytest.raises(PermissionError):
            recording.mount.stat()
        done = room.do_in_mount('fusermount3 -u "$M"')
        assert done.returncode == 0, done.stderr
        assert recording.process.wait(DEADLINE) == 0
    records = read_log(room.places.log)
    assert (records[-1].kind, records[-1].text) == ("end", "unmounted")
    check_same(replay(records, room.places.base), read_tree(room.places.backing))
    kinds = [record.kind for record in records]
    assert {"create", "write", "fsync", "rename", "mkdir", "symlink"} <= set(kinds)
    assert [record.text for record in records if record.kind == "acknowledge"] == ["done"]
    made = room.places.backing / "g"
    assert made.stat().st_uid == USER
    assert stat.S_IMODE(room.places.log.stat().st_mode) == 0o600


def test_a_signal_and_a_kill_leave_no_mount_of_a_user(device: None, room: Room) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, 128 + signal.SIGKILL)):
        with start_recording(room.places, program=room.program) as recording:
            assert room.do_in_mount('echo x > "$M/x"').returncode == 0
            os.kill(recording.process.pid, number)
            assert recording.process.wait(DEADLINE) in (code, -number)
            wait_until_unmounted(room.places.mount)
        shutil.rmtree(room.places.base)
        room.places.log.unlink()


def refused(room: Room, **environment: str) -> str:
    places = room.places
    argv = [*room.program, str(places.backing), str(places.mount), "--log", str(places.log)]
    done = subprocess.run(
        argv, env=os.environ | environment, capture_output=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 1
    assert not is_mounted(places.mount)
    return done.stderr.decode()


def test_what_a_user_lacks_is_named(device: None, room: Room) -> None:
    told = refused(room, FUSERMOUNT_PATH="/nonexistent/fusermount3")
    assert "fusermount3" in told
    assert "fuse3" in told
    room.places.log.unlink()
    DEVICE.chmod(0o600)
    told = refused(room)
    assert "/dev/fuse: Permission denied" in told
    assert len(told.splitlines()) == 1


# Modes that deny their owner what the file is opened for: they count for later opens.
CLOSED = """
import os, sys
for mode in (0o444, 0o400, 0o200, 0):
    fd = os.open(f"f{mode:o}", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
    os.write(fd, b"data")
    assert os.pread(fd, 9, 0) == b"data"
    os.close(fd)
    assert os.stat(f"f{mode:o}").st_mode & 0o777 == mode
"""
GIT = "git init -q g; cd g; echo 1 > f; git add -A; git -c user.name=n -c user.email=e commit -qm m"


def test_a_file_may_be_made_that_its_owner_may_not_open(device: None, room: Room) -> None:
    with start_recording(room.places, program=room.program) as recording:
        for script in (f"python3 -c '{CLOSED}'", GIT):
            done = room.do_in_mount(f'set -e; cd "$M"; {script}')
            assert done.returncode == 0, done.stderr
        assert room.do_in_mount('fusermount3 -u "$M"').returncode == 0
        assert recording.process.wait(DEADLINE) == 0
    records = read_log(room.places.log)
    check_same(replay(records, room.places.base), read_tree(room.places.backing))


# More files than descriptors, in more directories, with second names and without any.
MANY = """
import os
for d in range(40):
    os.mkdir(f"d{d}")
    for f in range(40):
        with open(f"d{d}/f{f}", "w") as file:
            file.write(f"{d}.{f}")
for d in range(40):
    os.link(f"d{d}/f0", f"l{d}")
    os.rename(f"d{d}", f"e{d}")
    os.unlink(f"e{d}/f0")
gone = [open(f"e{d}/f1") for d in range(10)]
folders = [os.open(f"e{d}", os.O_RDONLY) for d in range(30, 35)]
for d in range(10):
    os.unlink(f"e{d}/f1")
seen = sum(len(files) for _, _, files in os.walk("."))
assert seen == 1 + 1600 - 10, seen
for d in range(40):
    assert open(f"l{d}").read() == f"{d}.0"
    os.chmod(f"e{d}/f{d}", 0o600) if d > 1 else None
    os.truncate(f"e{d}/f39", 1)
    os.rename(f"e{d}/f38", f"e{(d + 7) % 40}/g{d}")
for d, file in enumerate(gone):
    assert file.read() == f"{d}.1"
    os.fchmod(file.fileno(), 0o600)
    assert os.fstat(file.fileno()).st_nlink == 0
for d in range(40):
    assert open(f"e{(d + 7) % 40}/g{d}").read() == f"{d}.38"
"""


def test_more_files_than_may_be_open_are_found_by_their_names(device: None, room: Room) -> None:
    few = [room.program[0], *room.program[1:-1], "prlimit", "--nofile=96:96", room.program[-1]]
    with start_recording(room.places, program=few) as recording:
        # The kernel remembers all of them while they are listed in the next.
        done = room.do_in_mount(f"set -e; cd \"$M\"; python3 -c '{MANY}'")
        assert done.returncode == 0, done.stderr
        open_now = len(list(Path(f"/proc/{recording.process.pid}/fd").iterdir()))
        assert open_now < 96
        assert room.do_in_mount('fusermount3 -u "$M"').returncode == 0
        assert recording.process.wait(DEADLINE) == 0
    records = read_log(room.places.log)
    check_same(replay(records, room.places.base), read_tree(room.places.backing))
