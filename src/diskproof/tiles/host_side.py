"""What tiles take of the host: how many fit into its memory, and what each guest used."""

import mmap
import os
import re
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.plan.tile_costs import OVERHEAD_BYTES, count_fitting, tile_memory
from diskproof.records.tiles import GuestUse
from diskproof.study.tiles import Tile
from diskproof.units import render_bytes

PROC = Path("/proc")


@dataclass(frozen=True)
class HostReading:
    """What a process took of the host since it was started; ``peak_bytes`` is its largest
    resident set, ``merged_bytes`` what KSM shares of it now."""

    cpu_seconds: float
    read_bytes: int
    written_bytes: int
    peak_bytes: int
    merged_bytes: int


def most_tiles(tile: Tile, memory: int, accel: str) -> int:
    """How many tiles fit into ``memory`` bytes (``host.memory.read_available_bytes``)."""
    return count_fitting(tile, memory, accel)


def require_memory(tile: Tile, tiles: int, memory: int, accel: str) -> None:
    """Raises RunFailure ``memory``, with the sum, for more tiles than fit into it: a host that
    swaps measures its swap, and one that cannot kills a guest or us."""
    needed = tile_memory(tile, accel) * tiles
    if needed <= memory:
        return
    guests, most = len(tile.guests) * tiles, most_tiles(tile, memory, accel)
    raise RunFailure(
        "memory",
        f"{tiles} {'tile' if tiles == 1 else 'tiles'} do not fit into this host's memory",
        f"{guests} guests: {render_bytes(tile.memory * tiles)} of their own + {guests} x "
        f"{render_bytes(OVERHEAD_BYTES[accel])} for QEMU = {render_bytes(needed)}, "
        f"{render_bytes(memory)} are available",
        f"at most {most} fit; end other programs, or make guests smaller",
    )


def read_use(pid: int, proc: Path = PROC) -> HostReading:
    """What QEMU has taken so far (proc_pid_stat(5), proc_pid_io(5), proc_pid_status(5)).

    Raises RunFailure ``qemu`` when it is gone.
    """
    folder = proc / str(pid)
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return HostReading(
            ticks / os.sysconf("SC_CLK_TCK"),
            _count(folder / "io", "read_bytes"),
            _count(folder / "io", "write_bytes"),
            _count(folder / "status", "VmHWM") << 10,
            _merged_pages(folder) * mmap.PAGESIZE,
        )
    except (OSError, IndexError, ValueError) as error:
        raise RunFailure("qemu", f"the use of process {pid} cannot be read", str(error)) from None


def _count(path: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", path.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{path} does not tell {name}")
    return int(found[1])


def _merged_pages(folder: Path) -> int:
    """None are where the kernel has no KSM."""
    path = folder / "ksm_merging_pages"
    return int(path.read_text()) if path.exists() else 0


def guest_use(tile: int, guest: str, before: HostReading, after: HostReading) -> GuestUse:
    """What a guest took between two readings."""
    return GuestUse(
        tile,
        guest,
        after.cpu_seconds - before.cpu_seconds,
        after.read_bytes - before.read_bytes,
        after.written_bytes - before.written_bytes,
        after.peak_bytes,
        after.merged_bytes,
    )
