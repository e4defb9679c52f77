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
    """Open to all, as udev makes it; in a container without udev it may be root's alone."""
    mode = stat.S_IMODE(DEVICE.stat().st_mode)
    DEVICE.chmod(0o666)
    yield
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
