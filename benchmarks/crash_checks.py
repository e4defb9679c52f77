"""States that a program judges a second: each by itself, and shared by what the check read.

Records 20 logs of small programs (SQLite, git, renamed files, appended lines; RocksDB with
``--rocksdb``, a folder that holds the package rocksdict), and explores each in turns: the check
started for each state or staying, every state judged by itself or by another that equals it in all
that the check read. Prints the states a second of each, and exits with 1 when two verdicts on one
log differ, or SQLite or git stay below their bar. With ``--profiles`` instead: what a state
takes by the rules of each file system, in turns with those of POSIX.

Requires root, /dev/fuse, git and the built native programs.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diskproof.process.native import require_native
from diskproof.process.start import run
from diskproof.records.verdicts import PROFILES
from support.promising import Promising, files, git, lines, rocksdb, sqlite, start_promised

BARS = {"sqlite": 500.0, "git": 300.0, "rocksdb": 150.0}
"""States a second on two cores with little else to do."""
REPEATS = 3
IDLE = {
    "kind": "command",
    "argv": ["/bin/sh", "-c", "while read -r line; do echo 0; done"],
    "stays": True,
    "share_reads": False,
    "timeout_seconds": 60,
}
MOST = 1.1
"""A state by the rules of a file system takes so much longer than one by POSIX's."""
VERDICT = ("verdict", "lost", "age_ns", "state", "minimal", "missing", "covered")


def programs(rocks: str | None) -> list[Promising]:
    """What writes the logs."""
    databases = [
        *(sqlite(mode, "full", 16) for mode in ("delete", "truncate", "persist", "wal")),
        *(sqlite(mode, "off", 16) for mode in ("delete", "wal")),
        *(sqlite(mode, "normal", 24) for mode in ("delete", "wal")),
    ]
    repositories = [git(fsync, count) for fsync in ("default", "all") for count in (2, 4)]
    renamed = [
        files(12, flush=flush, folder=folder) for flush in (True, False) for folder in (True, False)
    ]
    appended = [lines(count, flush=flush) for count in (10, 30) for flush in (True, False)]
    return [
        *databases,
        *repositories,
        *renamed,
        *appended,
        *([rocksdb(rocks, 40)] if rocks else []),
    ]


def explore(
    recorded: Mapping[str, object],
    check: Mapping[str, object],
    states: int,
    fault: str = "power",
    minimise: int = 40,
) -> Any:
    """The summary of an exploration of at most so many states."""
    budget = {"states": states, "seconds": 1200, "minimise": minimise}
    request = {"fault": fault, "sector": 512, "seed": 1, "check": check, "budget": budget}
    argv = [str(require_native("diskproof-states")), "explore"]
    answer = run(argv, timeout=1500, stdin=json.dumps({**recorded, **request}).encode())
    return json.loads(answer.text.splitlines()[-1])


def compare(program: Promising, states: int, paces: dict[str, list[float]]) -> bool:
    """Explores one log in all ways; whether all say the same."""
    said = set()
    ways = [(stays, shares) for stays in (False, True) for shares in (False, True)]
    with tempfile.TemporaryDirectory() as room, start_promised(program, Path(room)) as recorded:
        for stays, shares in ways:
            if stays and not program.staying:
                continue
            check = program.request(stays=stays, share_reads=shares)
            began = children_seconds()
            found = explore(recorded, check, states)
            counts = found["states"]
            pace = counts["checked"] / found["seconds"]
            each = (children_seconds() - began) / counts["checked"] * 1e3
            way = f"{'stays' if stays else 'started'}, {'shared' if shares else 'each by itself'}"
            paces[f"{program.name.split()[0]}, {way}"].append(pace)
            said.add(json.dumps([found[word] for word in VERDICT]))
            load = os.getloadavg()[0]
            print(
                f"{program.name:24} {way:24} {found['verdict']:8} {counts['checked']:6} states, "
                f"{counts['equal']:6} by others {pace:8.0f}/s  "
                f"{each:.2f} ms of processors each  load {load:.1f}"
                f"{'  UNSTEADY' if found['unsteady'] else ''}",
                flush=True,
            )
    if len(said) > 1:
        print(f"{program.name}: the verdicts differ: {said}")
    return len(said) == 1


def children_seconds() -> float:
    """What processors did for the programs that we started and that have ended: another's load does
    not count."""
    told = os.times()
    return told.children_user + told.children_system


def price(program: Promising, states: int) -> dict[str, float]:
    """Explores one log by all rules in turns; by rules, a state's processor time to one by those
    of POSIX whose check takes as long. A check that does nothing tells what the rules take."""
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as room, start_promised(program, Path(room)) as recorded:
        real = program.request(stays=bool(program.staying), share_reads=False)
        for _ in range(REPEATS):
            ways = [("check", "power", real)]
            ways += [(fault, fault, IDLE) for fault in ("power", *PROFILES.values())]
            for way, fault, check in ways:
                began = children_seconds()
                found = explore(recorded, check, states, fault, minimise=0)
                spent = children_seconds() - began
                times[way].append(spent / found["states"]["checked"])
    taken = {way: statistics.median(values) for way, values in times.items()}
    whole = taken.pop("check")
    return {way: (whole + own - taken["power"]) / whole for way, own in taken.items()}


def price_all(programs: Sequence[Promising], states: int) -> int:
    """The table of all logs."""
    prices: dict[str, list[float]] = defaultdict(list)
    for program in programs:
        for fault, ratio in price(program, states).items():
            prices[fault].append(ratio)
            print(f"{program.name:24} {fault:22} {ratio:5.2f}  load {os.getloadavg()[0]:.1f}")
    for fault, ratios in prices.items():
        print(f"{fault:22} median {statistics.median(ratios):5.2f} most {max(ratios):5.2f}")
    return 0 if all(statistics.median(ratios) <= MOST for ratios in prices.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=3000)
    parser.add_argument("--only", default="", help="programs whose names begin so")
    parser.add_argument("--rocksdb", metavar="FOLDER")
    parser.add_argument("--profiles", action="store_true")
    options = parser.parse_args()
    paces: dict[str, list[float]] = defaultdict(list)
    some = [one for one in programs(options.rocksdb) if one.name.startswith(options.only)]
    if options.profiles:
        return price_all(some, options.states)
    same = [compare(program, options.states, paces) for program in some]
    medians = {way: statistics.median(values) for way, values in paces.items()}
    for way, median in medians.items():
        print(f"{way:40} {median:8.0f} states/s")
    print(f"{sum(same)} of {len(same)} logs: the same verdict in all ways")
    best = {
        name: max(pace for way, pace in medians.items() if way.startswith(name))
        for name in BARS
        if any(way.startswith(name) for way in medians)
    }
    return 0 if all(same) and all(best[name] >= BARS[name] for name in best) else 1


if __name__ == "__main__":
    sys.exit(main())
