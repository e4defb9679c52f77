"""What tracing costs: fsyncs and preads, plain, under sync trace and under strace, in turns.

Prints medians: microseconds added to each fsync and each pread, and their ratio to what
``strace -f --seccomp-bpf`` adds; exits with 1 when the mechanism that is chosen by itself adds more
than a third of it. On tmpfs an fsync is next to nothing, so the tracer's cost is all that is seen;
the second folder shows what is left of it on a disk. Requires root, cc and strace (Debian: strace).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from diskproof.native import require_native
from diskproof.proc import require_tool, run

BAR = 1 / 3
PEER = "strace --seccomp-bpf"
JUDGED = "tracepoints"
PREADS = 1000
TRACED = "trace=fsync,fdatasync,sync,syncfs,msync,sync_file_range"
PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
int main(int count, char **words) {
    int n = atoi(words[2]), m = atoi(words[3]), fd = open(words[1], O_RDWR | O_CREAT, 0600);
    char byte = 0;
    if (fd < 0 || pwrite(fd, &byte, 1, 0) != 1) return 1;
    double start = now();
    for (int i = 0; i < n; i++)
        if (fsync(fd)) return 1;
    double each = (now() - start) / n, best = 1e9;
    for (int turn = 0; turn < 20; turn++) {
        start = now();
        for (int i = 0; i < m; i++)
            if (pread(fd, &byte, 1, 0) != 1) return 1;
        double taken = (now() - start) / m;
        if (taken < best) best = taken;
    }
    printf("%.4f %.4f\n", each, best);
    return 0;
}
"""


@dataclass(frozen=True)
class Cost:
    """Microseconds a call; of preads the best of twenty bursts, since they are so short."""

    fsync: float
    pread: float


def tracers() -> dict[str, list[str]]:
    """The words in front of the program, by name; reports go nowhere."""
    trace = [str(require_native("diskproof-sync-trace")), "-o", "/dev/null", "--by"]
    strace = [require_tool("strace"), "-f", "-e", TRACED, "-o", "/dev/null"]
    return {
        "plain": [],
        JUDGED: [*trace, "tracepoints", "--"],
        "ptrace": [*trace, "ptrace", "--"],
        "notify": [*trace, "notify", "--"],
        PEER: [*strace, "--seccomp-bpf"],
        "strace": strace,
    }


def build_program(folder: Path) -> Path:
    source, program = folder / "calls.c", folder / "calls"
    source.write_text(PROGRAM)
    run(["cc", "-O2", "-o", str(program), str(source)], timeout=60)
    return program


def measure(argv: list[str]) -> Cost:
    fsync, pread = run(argv, timeout=300).text.split()
    return Cost(float(fsync), float(pread))


def measure_all(program: Path, file: Path, calls: int, turns: int) -> dict[str, Cost]:
    """Medians of all turns; each turn runs every tracer once."""
    found: dict[str, list[Cost]] = {name: [] for name in tracers()}
    for _ in range(turns):
        for name, words in tracers().items():
            command = [*words, str(program), str(file), str(calls), str(PREADS)]
            found[name].append(measure(command))
    file.unlink()
    return {
        name: Cost(
            statistics.median(cost.fsync for cost in costs),
            statistics.median(cost.pread for cost in costs),
        )
        for name, costs in found.items()
    }


def render(place: str, costs: dict[str, Cost]) -> str:
    plain = costs["plain"]
    lines = [f"{place}: plain fsync {plain.fsync:.2f} us, pread {plain.pread:.3f} us"]
    lines.append(f"{'':<22}{'us/fsync':>10}{'more':>10}{'+us/pread':>11}")
    for name, cost in costs.items():
        if name != "plain":
            more, reading = cost.fsync - plain.fsync, cost.pread - plain.pread
            lines.append(f"{name:<22}{cost.fsync:>10.2f}{more:>10.2f}{reading:>11.3f}")
    return "\n".join(lines)


def share_of_peer(costs: dict[str, Cost], name: str) -> float:
    """What a tracer adds to an fsync, as a share of what the peer adds."""
    plain = costs["plain"].fsync
    return (costs[name].fsync - plain) / (costs[PEER].fsync - plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on a disk")
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        tempfile.TemporaryDirectory(dir=options.folder) as disk,
    ):
        program = build_program(Path(disk))
        costs = measure_all(program, Path(memory) / "f", options.calls, options.turns)
        print(render("tmpfs", costs))
        on_disk = measure_all(program, Path(disk) / "f", max(options.calls // 50, 1), options.turns)
        print(render(str(options.folder), on_disk))
    for name in (JUDGED, "ptrace", "notify"):
        print(f"{name} adds {share_of_peer(costs, name):.2f} of what {PEER} adds to an fsync")
    met = share_of_peer(costs, JUDGED) <= BAR
    print(f"bar: {BAR:.2f} for {JUDGED}, {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
