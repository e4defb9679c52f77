"""A tree over a share, there and back, with a real server and the kernel's client in one guest.

Builds the guest with servers where it is missing (a minute).
"""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from diskproof.guest.ours.build import build_guest
from diskproof.study.tiles import Tile, TileGuest, TileWork
from diskproof.tiles.loads.copy import LOAD, find_places
from diskproof.tiles.roles.file_server import ROLE
from diskproof.tiles.steps import TileContext, TileStep
from support.tile_guests import TileGuestUnderTest, start_tile_guest

pytestmark = pytest.mark.long

MIB = 1 << 20
FILES = 44
SCALE = Fraction(1, 1000)
OPTIONS = (("files", "44500"), ("bytes", "670M"), ("depth", "5"), ("idle", "30s"))
GUESTS = tuple(
    TileGuest(name, "file-server", "servers", 256 * MIB, 1, 128 * MIB) for name in ("a", "file-b")
)
WORK = TileWork("copy", "copy", "a", "file-b", OPTIONS, timeout=100.0)
TILE = Tile("files", "", GUESTS, (WORK,))


@pytest.mark.parametrize("share", ["smb", "nfs"])
def test_a_tree_goes_there_and_back(share: str, run_dir: Path) -> None:
    context = TileContext(TILE, share, SCALE)
    files = build_guest(extra="servers")
    with start_tile_guest(
        files, TILE, SCALE, run_dir, memory=GUESTS[0].memory, disk=GUESTS[0].disk
    ) as under:
        disk, serve = ROLE.setup(GUESTS[1], context)
        under.run([disk])
        if share == "smb":
            refuse_to_start(under, serve)
        under.run([serve])
        *copies, check_there, check_back = LOAD.steps(WORK, context)
        under.run(copies)
        mounts = under.guest.channel.read_file("/proc/self/mounts", MIB).decode()
        assert "/tmp/mounted" not in mounts
        under.run([check_there, check_back])
        told = {metric.name: metric.value for metric in LOAD.read(under.outputs, under.seconds)}
        assert told["throughput"] == pytest.approx(2 * FILES / told["seconds"])
        assert told["copy_there"] + told["copy_back"] == pytest.approx(told["seconds"])
        spoil(under, check_there, find_places(WORK.name, share).shared)


def refuse_to_start(under: TileGuestUnderTest, serve: TileStep) -> None:
    """A server that cannot start says why."""
    (path,) = serve.files
    nowhere = b"[global]\ninterfaces = 192.0.2.1\nbind interfaces only = yes\n"
    wrong = {path: serve.files[path].replace(b"[global]\n", nowhere)}
    status, said = under.try_step(replace(serve, files=wrong))
    assert status == 1 and "No sockets available" in said, said


def spoil(under: TileGuestUnderTest, check: TileStep, shared: str) -> None:
    """A file of the server's copy grows by a byte, and its check says so."""
    script = 'for file in $(find "$0" -type f -size +1); do printf ! >>"$file"; break; done'
    under.run([replace(check, argv=("sh", "-ec", script, shared))])
    status, said = under.try_step(check)
    assert status == 1 and "bytes, not" in said, said
