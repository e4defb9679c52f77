"""Four guests started at once against the same four one after the other.

Both get their roots mounted and the drivers of their cards loaded; they are started in turns.
Prints medians in seconds and the ratio; exits with 1 when at once is not cheaper by the bar.
What can be had depends on the processors: a boot under emulation keeps one busy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from diskproof.guest.boot import Guest
from diskproof.guest.build import GuestFiles, require_guest
from diskproof.qemu.machine import GuestMachine
from diskproof.tiles.group import GuestKey, Member, start_group
from diskproof.tiles.network import start_network

BAR = 0.75  # at once / in a row, on two processors
DEADLINE = 300.0


def start_at_once(members: Mapping[GuestKey, Member]) -> float:
    began = time.monotonic()
    with start_group(members, deadline=DEADLINE) as guests:
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
def members_of(files: GuestFiles, guests: int, accel: str) -> Iterator[dict[GuestKey, Member]]:
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
                    accel, memory_bytes=256 << 20, card=network.port(tile, place)
                )
                members[tile, f"guest-{place}"] = Member(files, machine, run_dir)
            yield members


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--guests", type=int, default=4)
    options.add_argument("--accel", choices=("tcg", "kvm"), default="tcg")
    options.add_argument("--with", dest="extra", default="", help="packages of the root")
    chosen = options.parse_args()
    at_once: list[float] = []
    in_a_row: list[float] = []
    with members_of(require_guest(chosen.extra), chosen.guests, chosen.accel) as members:
        for number in range(chosen.rounds):
            turns = [(at_once, start_at_once), (in_a_row, start_in_a_row)]
            for times, start in turns if number % 2 else reversed(turns):
                times.append(start(members))
    ratio = statistics.median(at_once) / statistics.median(in_a_row)
    for name, times in (("at once", at_once), ("in a row", in_a_row)):
        middle, low, high = statistics.median(times), min(times), max(times)
        print(f"{name:10} median {middle:.2f} s  ({low:.2f} to {high:.2f}, n={len(times)})")
    print(f"{'ratio':10} {ratio:.2f}  (bar: at most {BAR}; {os.cpu_count()} processors)")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
