"""What dropping syncs gains: sync drop beside libeatmydata and beside nothing, in turns.

Needs eatmydata, PostgreSQL and Go, which `make setup` does not bring: apt-get install eatmydata
postgresql golang-go. What is missing is told and not measured; without eatmydata nothing is
judged. Everything runs on the file system of ``--folder``, PostgreSQL as an ordinary user.

Prints for every load the median of each dropper, and the median of the ratios of our two to
libeatmydata in neighbouring turns with its interval, which assumes nothing about the noise (all
of them together 95 %; of fewer than 12 turns less). Exits with 1 when a whole interval is below
1, when libeatmydata stops more ways to sync or gets more errors right, or when a call that is not
dropped costs more than the bar.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError
from diskproof.process.native import require_native
from diskproof.process.start import find_tool, run
from support.databases import find_programs, make_cluster, start_server
from support.syncing import (
    SQLITE_WRITER,
    add_args,
    build_c,
    build_go,
    clone_args,
    dpkg_args,
    fill_tree,
    make_packages,
    make_repository,
)

PEER = "eatmydata"
OURS = ("sync drop", "--preload")
PACKAGES, PACKAGE_FILES, GIT_FILES = 20, 25, 300
CLIENTS = 4
SHORT = 3  # times as many turns of loads that may be short
CALL_BAR_NS = 100.0
TIMEOUT = 600.0

Droppers = Mapping[str, Sequence[str]]
Turn = Callable[[Sequence[str]], float]
"""One turn under an argv prefix. Answers a rate: higher is better."""


@dataclass(frozen=True)
class Load:
    """One thing that syncs. ``start`` prepares it in a folder for all turns."""

    name: str
    unit: str
    start: Callable[[Path, float], Iterator[Turn]]
    short: bool = True  # its turns take as long as they are told, and there are more of them


def find_droppers() -> Droppers:
    """argv prefixes by name; without eatmydata its own is not among them."""
    drop = str(require_native("diskproof-sync-drop"))
    peer = {PEER: ["eatmydata"]} if find_tool("eatmydata") else {}
    return {"none": [], **peer, OURS[0]: [drop, "--"], OURS[1]: [drop, "--preload", "--"]}


def run_rate(prefix: Sequence[str], argv: Sequence[str]) -> float:
    """What a program prints last."""
    return float(run([*prefix, *argv], timeout=TIMEOUT).text.split()[-1])


def run_per_second(prefix: Sequence[str], argv: Sequence[str]) -> float:
    """Whole runs a second, start-up of the dropper included."""
    return 1 / run([*prefix, *argv], timeout=TIMEOUT).seconds


def start_postgres(folder: Path, seconds: float) -> Iterator[Turn]:
    """One cluster; each turn starts the server under the dropper and loads it from outside."""
    programs = find_programs()
    if programs is None:
        raise HostError("PostgreSQL is not installed", "", "apt-get install postgresql")
    bench = str(programs / "pgbench")
    with make_cluster(folder) as cluster:

        def measure(prefix: Sequence[str]) -> float:
            with start_server(cluster, prefix=prefix) as server:
                url = server.url("postgres")
                run([bench, "--initialize", "--quiet", "--no-vacuum", url], timeout=TIMEOUT)
                argv = [
                    bench,
                    "--no-vacuum",
                    f"--client={CLIENTS}",
                    f"--time={max(1, round(seconds))}",
                    url,
                ]
                text = run(argv, timeout=TIMEOUT).text
            line = next(line for line in text.splitlines() if line.startswith("tps = "))
            return float(line.split()[2])

        yield measure


def start_sqlite(journal: str) -> Callable[[Path, float], Iterator[Turn]]:
    def start(folder: Path, seconds: float) -> Iterator[Turn]:
        def measure(prefix: Sequence[str]) -> float:
            with make_place(folder) as place:
                words = [str(place / "db"), str(seconds), journal]
                return run_rate(prefix, [sys.executable, "-c", SQLITE_WRITER, *words])

        yield measure

    return start


def start_dpkg(folder: Path, seconds: float) -> Iterator[Turn]:
    packages = make_packages(folder, PACKAGES, PACKAGE_FILES)

    def measure(prefix: Sequence[str]) -> float:
        with make_place(folder) as root:
            return PACKAGES * run_per_second(prefix, dpkg_args(root, packages))

    yield measure


def start_clone(folder: Path, seconds: float) -> Iterator[Turn]:
    repository = make_repository(folder, GIT_FILES)

    def measure(prefix: Sequence[str]) -> float:
        with make_place(folder) as place:
            return run_per_second(prefix, clone_args(repository, place / "clone"))

    yield measure


def start_add(folder: Path, seconds: float) -> Iterator[Turn]:
    def measure(prefix: Sequence[str]) -> float:
        with make_place(folder) as place:
            tree = place / "tree"
            fill_tree(tree, GIT_FILES)
            run(["git", "init", "--quiet", str(tree)], timeout=TIMEOUT)
            return GIT_FILES * run_per_second(prefix, add_args(tree))

    yield measure


def start_program(
    build: Callable[[Path], Path], *words: str
) -> Callable[[Path, float], Iterator[Turn]]:
    def start(folder: Path, seconds: float) -> Iterator[Turn]:
        program = build(folder)

        def measure(prefix: Sequence[str]) -> float:
            with make_place(folder) as place:
                return run_rate(prefix, [str(program), str(place / "f"), str(seconds), *words])

        yield measure

    return start


@contextmanager
def make_place(folder: Path) -> Iterator[Path]:
    """An empty folder for one turn."""
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def build_static(folder: Path) -> Path:
    return build_c(folder, static=True)


def build_dynamic(folder: Path) -> Path:
    return build_c(folder, static=False)


LOADS = (
    Load("PostgreSQL, pgbench", "commits/s", start_postgres, short=False),
    Load("SQLite, rollback journal", "commits/s", start_sqlite("DELETE")),
    Load("SQLite, WAL", "commits/s", start_sqlite("WAL")),
    Load("dpkg --install", "packages/s", start_dpkg, short=False),
    Load("git clone", "clones/s", start_clone, short=False),
    Load("git add, loose objects", "files/s", start_add, short=False),
    Load("C, write and fsync", "turns/s", start_program(build_dynamic, "wf")),
    Load("static C, write and fsync", "turns/s", start_program(build_static, "wf")),
    Load("Go, write and fsync", "turns/s", start_program(build_go)),
)
CALLS = (
    Load("fsync alone, C", "calls/s", start_program(build_dynamic, "f")),
    Load("pread, not dropped", "calls/s", start_program(build_dynamic, "r")),
)


# All intervals together are right in 95 of 100 runs of this benchmark.
CONFIDENCE = 1 - 0.05 / (len(LOADS) * len(OURS))


Measured = dict[str, list[float]]


def measure_load(load: Load, droppers: Droppers, options: argparse.Namespace) -> Measured:
    """Turns of all droppers, in an order that changes from turn to turn."""
    values: Measured = {name: [] for name in droppers}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)
        turn = stack.enter_context(contextmanager(load.start)(Path(folder), options.seconds))
        names = list(droppers)
        for number in range(options.turns * (SHORT if load.short else 1)):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                values[name].append(turn(droppers[name]))
    return values


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Order statistics around the median: right for any distribution (the sign test's interval).

    The whole range when there are too few values for ``CONFIDENCE``.
    """
    n, outside, rank = len(values), 0.0, 0
    while rank < n // 2:
        outside += 2 * math.comb(n, rank) / 2**n
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    ordered, rank = sorted(values), max(rank - 1, 0)
    return ordered[rank], ordered[n - 1 - rank]


def report_load(load: Load, measured: Measured) -> bool:
    """Print a load's row; False when one of ours is behind the peer beyond noise."""
    medians = " ".join(f"{statistics.median(values):10.0f}" for values in measured.values())
    row, held = f"{load.name:26} {load.unit:10} {medians}", True
    for name in OURS if PEER in measured else ():
        ratios = [a / b for a, b in zip(measured[name], measured[PEER], strict=True)]
        low, high = median_interval(ratios)
        held &= high >= 1
        row += f"  {statistics.median(ratios):6.2f} [{low:.2f}, {high:.2f}]"
    print(row + ("" if held else "  behind"), flush=True)
    return held


def report_calls(droppers: Droppers, options: argparse.Namespace) -> bool:
    """Print what single calls cost; False when one that is not dropped costs too much."""
    held = True
    for load in CALLS:
        measured = measure_load(load, droppers, options)
        cost = {name: [1e9 / rate for rate in seen] for name, seen in measured.items()}
        medians = " ".join(f"{statistics.median(ns):10.0f}" for ns in cost.values())
        row = f"{load.name:26} {'ns/call':10} {medians}"
        if load.name.startswith("pread"):
            added = max(median_difference(cost[name], cost["none"]) for name in OURS)
            held = added <= CALL_BAR_NS
            row += f"  at most {added:.0f} ns added" + ("" if held else ", above the bar")
        print(row, flush=True)
    return held


def median_difference(above: Sequence[float], below: Sequence[float]) -> float:
    """Of neighbouring turns."""
    return statistics.median(a - b for a, b in zip(above, below, strict=True))


def count_ways(prefix: Sequence[str], folder: str) -> tuple[int, int]:
    """Ways to sync that are stopped, errors that are the kernel's own."""
    ways = str(require_native("diskproof-sync-ways"))
    argv = [ways, "--json", "--dir", folder, "--", *prefix]
    report = json.loads(run(argv, timeout=TIMEOUT, check=False).stdout)
    return report["stopped"], report["errno_same"]


def report_ways(droppers: Droppers, folder: str) -> bool:
    """Print what is stopped; False when libeatmydata does better in one of the two."""
    counts = {name: count_ways(prefix, folder) for name, prefix in droppers.items() if prefix}
    print(f"\n{'':26} {'of':10} " + " ".join(f"{name:>10}" for name in counts))
    for place, (what, total) in enumerate((("ways to sync stopped", 23), ("errors right", 15))):
        cells = " ".join(f"{count[place]:10}" for count in counts.values())
        print(f"{what:26} {total:<10} {cells}")
    peer = counts.get(PEER, (0, 0))
    return all(ours >= its for name in OURS for ours, its in zip(counts[name], peer, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="/var/tmp", help="on the disk to use")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn, where it has a say")
    parser.add_argument("--turns", type=int, default=12, help="of each dropper")
    parser.add_argument("--only", default="", help="loads whose name holds this")
    options = parser.parse_args()
    try:
        droppers = find_droppers()
    except HostError as error:
        print(error)
        return 3
    if PEER not in droppers:
        print(
            "eatmydata is not installed (apt-get install eatmydata): nothing is judged against it"
        )
    print(f"{'':26} {'':10} " + " ".join(f"{name:>10}" for name in droppers))
    held = []
    for load in LOADS:
        if options.only in load.name:
            try:
                held.append(report_load(load, measure_load(load, droppers, options)))
            except HostError as error:
                print(f"{load.name:26} not measured: {error}")
    if not options.only:
        held += [report_calls(droppers, options), report_ways(droppers, options.folder)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
