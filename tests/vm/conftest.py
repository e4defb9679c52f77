"""Requires the built guest (``diskproof guest build``) and qemu-system-x86_64."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.guest.ours.build import GuestFiles, find_guest, require_guest
from diskproof.process.run_user import require_run_user
from support.running import find_offspring


@pytest.fixture(scope="session")
def guest_files() -> GuestFiles:
    return require_guest()


@pytest.fixture(scope="session")
def zfs_files() -> GuestFiles:
    """Its modules take some minutes to build, which is not for every run of the tests."""
    if find_guest("zfs") is None:
        pytest.skip("the guest with ZFS is not built: make test-zfs")
    return require_guest("zfs")


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A run's folder; afterwards no process, no open file and no file but QEMU's log is left."""
    require_run_user()  # its lock stays open as long as we live
    before = open_files()
    folder = tmp_path / "run"
    folder.mkdir()
    yield folder
    assert find_offspring() == []
    assert open_files() == before
    assert {path.name for path in folder.iterdir()} <= {"qemu.log"}


def open_files() -> list[str]:
    """What our descriptors point to, without their numbers and those of sockets and pipes."""
    folder = Path("/proc/self/fd")
    targets = []
    for entry in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        try:
            targets.append(str(entry.readlink()).partition(":[")[0])
        except FileNotFoundError:
            continue  # the listing's own descriptor
    return sorted(targets)
