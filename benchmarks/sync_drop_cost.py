"""What one dropped fsync costs in each layer, and what a call pays that is not dropped.

Beside libeatmydata if it is there (apt-get install eatmydata), in turns, on the file system of
``--folder``. Prints medians over the turns, in nanoseconds; in a turn the best of 40 short loops
counts, since neighbours on the host only ever add time. Exits with 1 when a dropped
fsync of a dynamically linked program takes over 200 ns, or longer than libeatmydata's, or when a
pread(2) or a getppid(2) pays more than 100 ns for the filter, or anything for ``--preload``.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import find_tool, run
from support.sync_programs import compile_program

FSYNC_BAR_NS = 200.0
TAX_BAR_NS = 100.0
# Medians of two equal things differ by so much here.
NOISE_NS = 25.0
TIMEOUT = 120.0

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
#define EACH(name, times, call) do { \
    double best = 1e18; \
    for (int turn = 0; turn < 40; turn++) { \
        double start = now(); \
        for (long i = 0; i < (times); i++) call; \
        double each = (now() - start) / (times); \
        if (each < best) best = each; \
    } \
    printf("%s %.1f\n", name, best); } while (0)
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    long syncs = atol(argv[2]);
    char byte = 1;
    pwrite(fd, &byte, 1, 0);
    EACH("fsync", syncs, fsync(fd));
    EACH("open-sync", syncs / 20 + 1, close(open(argv[1], O_RDWR | O_SYNC)));
    EACH("pread", 4000, pread(fd, &byte, 1, 0));
    EACH("getppid", 4000, getppid());
    EACH("openat", 1000, close(open(argv[1], O_RDWR)));
    return 0;
}
"""

Row = dict[str, float]


def parse_row(text: str) -> Row:
    """``NAME NANOSECONDS`` a line."""
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}


def find_setups(folder: Path) -> Mapping[str, Sequence[str]]:
    """argv by the name of a setup; the program takes a file and a number of syncs."""
    dynamic = str(compile_program(folder, "dynamic", SOURCE))
    static = str(compile_program(folder, "static", SOURCE, "-static"))
    drop = [str(require_native("diskproof-sync-drop")), "--quiet"]
    file = str(folder / "data")
    peer = {"eatmydata": ["eatmydata", dynamic, file, "4000"]}
    return {
        "plain": [dynamic, file, "2"],
        **(peer if find_tool("eatmydata") else {}),
        "sync drop --preload": [*drop, "--preload", "--", dynamic, file, "4000"],
        "sync drop": [*drop, "--", dynamic, file, "4000"],
        "sync drop, static": [*drop, "--", static, file, "200"],
    }


def measure(setups: Mapping[str, Sequence[str]], turns: int) -> dict[str, Row]:
    """Medians over the turns, in which the setups follow each other."""
    rows: dict[str, list[Row]] = {name: [] for name in setups}
    for _ in range(turns):
        for name, argv in setups.items():
            rows[name].append(parse_row(run(argv, timeout=TIMEOUT).text))
    return {
        name: {call: statistics.median(row[call] for row in of) for call in of[0]}
        for name, of in rows.items()
    }


def check_bars(medians: Mapping[str, Row]) -> list[str]:
    """What falls short."""
    plain, short = medians["plain"], []
    for name in ("sync drop", "sync drop --preload"):
        row, tax_bar = medians[name], TAX_BAR_NS if name == "sync drop" else NOISE_NS
        if row["fsync"] > FSYNC_BAR_NS:
            short.append(f"{name}: an fsync takes {row['fsync']:.0f} ns")
        peer = medians.get("eatmydata", {}).get("fsync", FSYNC_BAR_NS)
        if row["fsync"] > peer + NOISE_NS:
            short.append(f"{name}: an fsync takes {row['fsync']:.0f} ns, eatmydata's {peer:.0f}")
        for call in ("pread", "getppid"):
            if row[call] - plain[call] > tax_bar:
                short.append(f"{name}: {call} pays {row[call] - plain[call]:.0f} ns")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as room:
        medians = measure(find_setups(Path(room)), options.turns)
    calls = list(medians["plain"])
    print(f"{'ns a call':22}" + "".join(f"{call:>12}" for call in calls))
    for name, row in medians.items():
        print(f"{name:22}" + "".join(f"{row[call]:12.0f}" for call in calls))
    short = check_bars(medians)
    print("\n".join(short) or "all bars are met")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
