"""Runs of small tiles through the real executor, for tests."""

from fractions import Fraction
from pathlib import Path

from diskproof.backings import NO_CONSENT
from diskproof.lab.setup import LabSetup
from diskproof.records import BackingSpec, Cell, WorkloadSpec
from diskproof.records.tiles import TileRun
from diskproof.study.tile_file import parse_tile
from diskproof.study.tiles import KIND, TileRules
from diskproof.tiles.engine import OnStep, PhaseProgress
from diskproof.tiles.run import TileLab
from support.running import assert_nothing_left

LEVELS = {
    "backing": "here",
    "bus": "virtio-blk",
    "cache": "writeback",
    "format": "raw",
    "frontend": "guest",
}

# A disk server of fio's own in one guest, which the other has write a file on it.
PAIR = r"""
[guests.server]
memory = "192MiB"
disk = "64MiB"
[guests.client]
memory = "192MiB"
disk = "64MiB"
[workloads.serve]
from = "server"
command = ["fio", "--server=ip:0.0.0.0", "--daemonize=/run/fio.pid"]
check = ["sh", "-c", "test $(stat -c %s /mnt/file) = 1048576"]
[workloads.write]
from = "client"
to = "server"
after = ["serve"]
command = ["sh", "-c", '''
printf '[file]\nfilename=/mnt/file\nrw=write\nbs=64k\nsize=1m\nend_fsync=1\n' > /tmp/job
exec fio --client="$HOST_SERVER" /tmp/job
''']
"""

# One guest that writes until it is stopped.
LONE = r"""
[guests.writer]
memory = "192MiB"
disk = "64MiB"
[workloads.write]
from = "writer"
command = ["sh", "-c", "while dd if=/dev/zero of=/mnt/file bs=1M count=40 conv=fsync; do :; done"]
"""


def make_lab(images: Path, tile: str, timeout: float = 240.0) -> TileLab:
    backing = BackingSpec("here", "directory", (("path", str(images)),), make=True)
    setup = LabSetup("study", "host", {"here": backing}, NO_CONSENT, "tcg", timeout)
    rules = TileRules(parse_tile(tile, "test.toml"), Fraction(1))
    return TileLab(setup, rules)


def make_cell(**levels: str) -> Cell:
    return Cell(tuple(sorted({**LEVELS, **levels}.items())), WorkloadSpec("test", KIND))


def ignore(progress: PhaseProgress) -> None:
    pass


def execute(
    images: Path, tile: str, tiles: int = 1, on_step: OnStep = ignore, **levels: str
) -> TileRun:
    """One run; afterwards no process and no folder of it is left."""
    run = make_lab(images, tile).execute(make_cell(**levels), tiles, 1, on_step)
    assert_nothing_left(images)
    return run
