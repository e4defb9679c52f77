"""recordfs and what files have beside content: attributes, lists of access, set-ID bits, times.

Each is held against the same on the backing's own file system, and the log against the backing.
Requires root, /dev/fuse and the built diskproof-recordfs.
"""

import errno
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.recording import (
    DEADLINE,
    Recording,
    make_places,
    needs_fuse,
    open_folder,
    start_recording,
)

pytestmark = needs_fuse

OTHER = 2000
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
# Version 2, cap_net_raw in the permitted set, effective.
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
USER_OBJ, USER, GROUP_OBJ, MASK, OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY = 0xFFFFFFFF


def access_list(user: int, permissions: int, mode: int) -> bytes:
    """What setfacl -m u:USER:PERMISSIONS makes of a file of this mode."""
    mask = (mode >> 3 & 7) | permissions
    entries = [(USER_OBJ, mode >> 6 & 7, NOBODY), (USER, permissions, user)]
    entries += [
        (GROUP_OBJ, mode >> 3 & 7, NOBODY),
        (MASK, mask, NOBODY),
        (OTHERS, mode & 7, NOBODY),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def recording(folder: Path) -> Iterator[Recording]:
    """Checked at its end: the log replays to the backing, attributes and all."""
    with start_recording(make_places(folder)) as recording:
        yield recording
        recording.finish()


def do_as(user: int, script: str, path: Path, group: int | None = None) -> str:
    """What a shell of another user prints of a file; "refused" when it may not."""
    argv = ["setpriv", f"--reuid={user}", f"--regid={user if group is None else group}"]
    argv += ["--clear-groups", "sh", "-c", script, "sh", str(path)]
    done = subprocess.run(
        argv, cwd="/", capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "refused"


def both(recording: Recording, folder: Path, work: Callable[[Path], object]) -> None:
    """The same work on the mount and on a plain directory gives the same."""
    plain = folder / "plain"
    plain.mkdir(exist_ok=True)
    assert work(recording.mount) == work(plain)


def test_sizes_of_attributes_are_told(recording: Recording) -> None:
    file = recording.mount / "f"
    file.write_bytes(b"")
    os.setxattr(file, "user.k", b"hello")
    subprocess.run(["cp", "-a", file, recording.mount / "g"], check=True)
    assert os.getxattr(recording.mount / "g", "user.k") == b"hello"
    length = "import os, sys, ctypes; c = ctypes.CDLL(None)\n"
    length += "f = os.fsencode(sys.argv[1])\n"
    length += "print(c.getxattr(f, b'user.k', None, 0), c.listxattr(f, None, 0))"
    argv = ["python3", "-c", length, str(file)]
    assert subprocess.check_output(argv, text=True).split() == ["5", str(len("user.k") + 1)]


def change_what_costs_bits(folder: Path) -> list[tuple[int, bool]]:
    """Mode and capability of files after operations that have side effects."""
    found = []
    for number, script in enumerate(
        (
            ': >"$1"',
            'printf x >>"$1"',
            'truncate -s 3 "$1"',
            'fallocate -l 10 "$1"',
            'fallocate -p -o 0 -l 4096 "$1"',
        )
    ):
        for user in (OTHER, 0):
            for mode in (0o4777, 0o6777, 0o2767):
                file = folder / f"{number}-{user}-{mode:o}"
                file.write_bytes(b"data")
                file.chmod(mode)
                os.setxattr(file, "security.capability", CAPABILITY)
                assert stat.S_IMODE(file.stat().st_mode) == mode
                do_as(user, script, file)
                names = os.listxattr(file)
                found.append((stat.S_IMODE(file.stat().st_mode), "security.capability" in names))
    return found


def test_set_id_bits_and_capabilities_go_as_elsewhere(recording: Recording, folder: Path) -> None:
    both(recording, folder, change_what_costs_bits)


def change_owners_and_lists(folder: Path) -> list[object]:
    file, found = folder / "s", []
    file.write_bytes(b"")

    def look(path: Path) -> None:
        facts = path.stat()
        kept = {name: os.getxattr(path, name) for name in sorted(os.listxattr(path))}
        found.append((oct(facts.st_mode), facts.st_uid, facts.st_gid, kept))

    for mode in (0o4755, 0o6711):
        file.chmod(mode)
        os.chown(file, 1000, 1000)
        look(file)
    os.setxattr(file, "security.capability", CAPABILITY)
    os.chown(file, 0, 0)
    look(file)
    file.chmod(0o600)
    os.setxattr(file, ACCESS, access_list(33, 6, 0o600))
    look(file)
    file.chmod(0o640)  # changes the mask
    look(file)
    # A list that says no more than a mode is kept as one.
    entries = [(USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHERS, 0, NOBODY)]
    plain = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(file, ACCESS, plain)
    look(file)
    return found


def test_what_an_operation_changes_besides_is_in_the_log(
    recording: Recording, folder: Path
) -> None:
    both(recording, folder, change_owners_and_lists)


def make_under_a_list(folder: Path) -> list[object]:
    under = folder / "under"
    under.mkdir()
    os.setxattr(under, DEFAULT, access_list(33, 7, 0o750))
    before = os.umask(0o077)
    try:
        (under / "f").write_bytes(b"")
        (under / "d").mkdir()
        (folder / "plain-f").write_bytes(b"")
        (folder / "plain-d").mkdir()
    finally:
        os.umask(before)
    paths = (under / "f", under / "d", folder / "plain-f", folder / "plain-d")
    return [
        (oct(p.stat().st_mode), {name: os.getxattr(p, name) for name in sorted(os.listxattr(p))})
        for p in paths
    ]


def test_a_directory_gives_its_list_to_what_is_made_in_it(
    recording: Recording, folder: Path
) -> None:
    both(recording, folder, make_under_a_list)


def ask_by_list(folder: Path) -> list[str]:
    file = folder / "s"
    file.write_bytes(b"secret")
    os.chown(file, 0, 1000)
    file.chmod(0o600)
    os.setxattr(file, ACCESS, access_list(33, 6, 0o600))
    asked = [do_as(user, 'cat "$1"', file) for user in (33, 1000, OTHER)]
    return [*asked, do_as(33, 'printf more >>"$1" && cat "$1"', file)]


def test_lists_of_access_are_obeyed(recording: Recording, folder: Path) -> None:
    both(recording, folder, ask_by_list)
    assert ask_by_list(recording.mount) == ["secret", "refused", "refused", "secretmore"]


def test_times_before_1970_keep_their_fraction(recording: Recording) -> None:
    file = recording.mount / "f"
    file.write_bytes(b"")
    for time in (-1_500_000_000, -500_000_000, -1_000_000_000, -7_000_000_001, 1, 1_500_000_000):
        os.utime(file, ns=(time, time))
        assert (file.stat().st_atime_ns, file.stat().st_mtime_ns) == (time, time)
        assert (recording.places.backing / "f").stat().st_mtime_ns == time


def test_a_direct_read_behind_the_end_gives_nothing(recording: Recording) -> None:
    fd = os.open(recording.mount / "f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    assert os.pread(fd, 512, 5) == b""
    os.ftruncate(fd, 4096)
    with pytest.raises(OSError) as refused:
        os.pread(fd, 512, 5)
    assert refused.value.errno == errno.EINVAL
    os.close(fd)
