"""Steps of a tile one after the other in a single real guest, which plays all of its guests."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from diskproof.drive import DiskImage
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import GuestFiles
from diskproof.host.accel import probe_accel
from diskproof.qemu.disk import guest_disk_args
from diskproof.qemu.machine import GuestMachine
from diskproof.records import Cell, WorkloadSpec
from diskproof.study.tiles import Tile
from diskproof.tiles.steps import TileStep, step_environment

HERE = "127.0.0.1"
LEVELS = {"frontend": "guest", "format": "raw", "bus": "virtio-blk", "cache": "unsafe"}


@dataclass
class TileGuestUnderTest:
    """A guest with a disk, and what the steps that it ran said and took."""

    guest: Guest
    tile: Tile
    scale: Fraction
    loaded: list[str] = field(default_factory=list)
    outputs: dict[str, bytes] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, steps: Sequence[TileStep]) -> None:
        """Each must end well."""
        for step in steps:
            status, said = self.try_step(step)
            assert status == 0, f"{step.name}: {status}: {said}"

    def try_step(self, step: TileStep) -> tuple[int | None, str]:
        """Its status, and what it said of it."""
        new = [name for name in step.modules if name not in self.loaded]
        self.guest.load_modules(new)
        self.loaded.extend(new)
        for path, content in step.files.items():
            self.guest.channel.write_file(path, content)
        if not step.argv:  # a rest; nothing here is timed
            return 0, ""
        begun = time.monotonic()
        done = self.guest.channel.exec(step.argv, timeout=step.timeout, env=self.environment(step))
        self.seconds[step.name] = time.monotonic() - begun
        self.outputs[step.name] = done.stdout
        return done.exit.code, (done.stderr + done.stdout).decode("utf-8", "replace")

    def environment(self, step: TileStep) -> dict[str, str]:
        disk = self.guest.started.disk
        assert disk is not None
        named = step_environment(self.tile, 1, 1, step.guest, disk.device, self.scale)
        ours = {name: HERE for name in named if name == "SELF" or name.startswith("HOST_")}
        return {**named, **ours}


@contextmanager
def start_tile_guest(
    files: GuestFiles, tile: Tile, scale: Fraction, folder: Path, *, memory: int, disk: int
) -> Iterator[TileGuestUnderTest]:
    """``memory`` and ``disk`` in bytes. The disk's image is below ``folder`` and is sparse."""
    images = folder / "images"
    images.mkdir()
    images.chmod(0o777)
    image = images / "disk.img"
    with image.open("wb") as stream:
        stream.truncate(disk)
    image.chmod(0o666)
    cell = Cell(tuple(sorted(LEVELS.items())), WorkloadSpec("none", "fio"))
    machine = GuestMachine(
        probe_accel().accel,
        memory_bytes=memory,
        bus="virtio-blk",
        disk_args=tuple(guest_disk_args(cell, DiskImage(image, "raw", disk))),
    )
    with start_guest(files, machine, run_dir=folder, disk_folder=images) as guest:
        done = guest.channel.exec(["ip", "link", "set", "lo", "up"], timeout=60)
        assert done.exit.code == 0, done.stderr
        yield TileGuestUnderTest(guest, tile, scale)
        guest.power_off()
    image.unlink()
    images.rmdir()
