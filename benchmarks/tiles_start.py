"""Four guests started at once, booted and from one saved boot, against four boots in a row.

All get their roots mounted and the drivers of their cards loaded; they are started in turns. The
state of the boot is made before, as by the first of a study's many runs; what that takes is
told too. Prints medians in seconds and ratios; exits with 1 when one is above its bar. What boots
at once can gain depends on the processors: one under emulation keeps one busy.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.boot_states import BootStates, start_boot_states
from diskproof.guest.ours.build import GuestFiles, require_guest
from diskproof.qemu.machine import GuestMachine
from diskproof.tiles.group import GuestKey, Member, start_group
from diskproof.tiles.network import start_network

BOOTED_BAR = 0.75  # at once / in a row, on two processors
RESTORED_BAR = 0.5
DEADLINE = 300.0


def start_at_once(members: Mapping[GuestKey, Member], states: BootStates | None = None) -> float:
    began = time.monotonic()
    with start_group(members, deadline=DEADLINE, states=states) as guests:
        seconds = time.monotonic() - began
        kill_all(guests)
    return seconds


def start_in_a_row(members: Mapping[GuestKey, Member]) -> float:
    """Each is up before the next is started; none is ended meanwhile, as a tile needs them all."""
    began = time.monotonic()
    with row_of(list(members.items())) as guests:
        seconds = time.monotonic() - began
        kill_all(guests)
    return seconds


@contextmanager
def row_of(members: list[tuple[GuestKey, Member]]) -> Iterator[dict[GuestKey, Guest]]:
    if not members:
        yield {}
        return
    key, member = members[0]
    with start_group({key: member}, deadline=DEADLINE) as first, row_of(members[1:]) as rest:
        yield {**first, **rest}


def kill_all(guests: Mapping[GuestKey, Guest]) -> None:
    for guest in guests.values():
        guest.process.kill()


@contextmanager
def members_of(files: GuestFiles, guests: int) -> Iterator[tuple[Path, dict[GuestKey, Member]]]:
    with tempfile.TemporaryDirectory(prefix="diskproof-start-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        seats = [(1, place) for place in range(1, guests + 1)]
        with start_network(folder, "auto", seats) as network:
            members = {}
            for tile, place in seats:
                run_dir = folder / f"guest-{place}"
                run_dir.mkdir()
                machine = GuestMachine(
                    "tcg", memory_bytes=256 << 20, card=network.port(tile, place)
                )
                members[tile, f"guest-{place}"] = Member(files, machine, run_dir)
            yield folder, members


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--guests", type=int, default=4)
    options.add_argument("--with", dest="extra", default="", help="packages of the root")
    chosen = options.parse_args()
    times: dict[str, list[float]] = {"in a row": [], "at once": [], "from a state": []}
    with (
        members_of(require_guest(chosen.extra), chosen.guests) as (folder, members),
        start_boot_states(folder) as states,
    ):
        print(f"first start with its state made: {start_at_once(members, states):.2f} s")
        ways: dict[str, Callable[[], float]] = {
            "in a row": lambda: start_in_a_row(members),
            "at once": lambda: start_at_once(members),
            "from a state": lambda: start_at_once(members, states),
        }
        for number in range(chosen.rounds):
            for name in list(ways) if number % 2 else reversed(ways):
                times[name].append(ways[name]())
    return tell(times)


def tell(times: Mapping[str, list[float]]) -> int:
    row = statistics.median(times["in a row"])
    for name, each in times.items():
        middle, low, high = statistics.median(each), min(each), max(each)
        print(f"{name:13} median {middle:.2f} s  ({low:.2f} to {high:.2f}, n={len(each)})")
    status = 0
    for name, bar in (("at once", BOOTED_BAR), ("from a state", RESTORED_BAR)):
        ratio = statistics.median(times[name]) / row
        print(f"{name} / in a row: {ratio:.2f}  (bar: at most {bar}; {os.cpu_count()} processors)")
        status |= ratio > bar
    return status


if __name__ == "__main__":
    sys.exit(main())
