"""What tracing costs: fsyncs and preads, plain, under sync trace and under strace, in turns.

Once as root and once as an ordinary user, who gets another mechanism. Prints medians: microseconds
added to each fsync and each pread, and their ratio to what ``strace -f --seccomp-bpf`` adds; exits
with 1 when the mechanism that is chosen by itself adds more than a third of it, or the preloaded
library more than 300 ns in the best bursts, where nobody took the processor away. On tmpfs an fsync
is next to nothing, so the tracer's cost is all that is seen; the second folder shows what is left
of it on a disk. Requires root, cc and strace (Debian: strace).
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import require_tool, run

BAR = 1 / 3
PEER = "strace --seccomp-bpf"
CHOSEN = "sync trace"
LIBRARY_BAR = 0.3
PREADS = 1000
NOBODY = 65534
PROGRAMS = ("diskproof-sync-trace", "libdiskproof_sync_trace.so")
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
    double start, each = 0, best = 1e9, burst = 1e9;
    for (int done = 0; done < n; done += 50) {
        start = now();
        for (int i = 0; i < 50; i++)
            if (fsync(fd)) return 1;
        double taken = now() - start;
        each += taken / n;
        if (taken / 50 < burst) burst = taken / 50;
    }
    for (int turn = 0; turn < 20; turn++) {
        start = now();
        for (int i = 0; i < m; i++)
            if (pread(fd, &byte, 1, 0) != 1) return 1;
        double taken = (now() - start) / m;
        if (taken < best) best = taken;
    }
    double pair = 1e9;
    for (int turn = 0; turn < 20; turn++) {
        start = now();
        for (int i = 0; i < n / 100; i++)
            if (pwrite(fd, &byte, 1, 0) != 1 || fsync(fd)) return 1;
        double taken = (now() - start) / (n / 100);
        if (taken < pair) pair = taken;
    }
    printf("%.4f %.4f %.4f %.4f\n", each, burst, best, pair);
    return 0;
}
"""


@dataclass(frozen=True)
class Cost:
    """Microseconds a call; `fsync` is the mean, all others the best of many bursts."""

    fsync: float
    fsync_burst: float
    pread: float
    write_fsync: float


@dataclass(frozen=True)
class User:
    """Who runs the tracers: the words in front of them, and our own program as they may use it."""

    name: str
    prefix: tuple[str, ...]
    tool: Path
    mechanisms: tuple[str, ...]


def users(folder: Path) -> tuple[User, User]:
    """Root, and somebody who may do nothing that root may; with copies that both can read."""
    for name in PROGRAMS:
        (folder / name).write_bytes(require_native(name).read_bytes())
        (folder / name).chmod(0o755)
    tool = folder / PROGRAMS[0]
    drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    return (
        User("root", (), tool, ("preload", "ptrace")),
        User(f"uid {NOBODY}", drop, tool, ("ptrace",)),
    )


def find_chosen(user: User, folder: Path) -> str:
    """The mechanism that sync trace takes by itself for this user."""
    out = folder / f"chosen-{len(user.prefix)}.json"
    run([*user.prefix, str(user.tool), "--json", "-o", str(out), "--", "true"], timeout=60)
    return str(json.loads(out.read_text())["mechanism"])


def tracers(user: User) -> dict[str, list[str]]:
    """The words in front of the program, by name; reports go nowhere."""
    trace = [*user.prefix, str(user.tool), "-o", "/dev/null"]
    strace = [*user.prefix, require_tool("strace"), "-f", "-e", TRACED, "-o", "/dev/null"]
    return {
        "plain": [*user.prefix],
        CHOSEN: [*trace, "--"],
        **{by: [*trace, "--by", by, "--"] for by in user.mechanisms},
        PEER: [*strace, "--seccomp-bpf"],
        "strace": strace,
    }


def build_program(folder: Path) -> Path:
    source, program = folder / "calls.c", folder / "calls"
    source.write_text(PROGRAM)
    run(["cc", "-O2", "-o", str(program), str(source)], timeout=60)
    return program


def measure(argv: list[str]) -> Cost:
    return Cost(*map(float, run(argv, timeout=300).text.split()))


def measure_all(user: User, program: Path, file: Path, calls: int, turns: int) -> dict[str, Cost]:
    """Medians of all turns; each turn runs every tracer once."""
    found: dict[str, list[Cost]] = {name: [] for name in tracers(user)}
    for _ in range(turns):
        for name, words in tracers(user).items():
            command = [*words, str(program), str(file), str(calls), str(PREADS)]
            found[name].append(measure(command))
    file.unlink()
    return {
        name: Cost(
            statistics.median(cost.fsync for cost in costs),
            min(cost.fsync_burst for cost in costs),
            statistics.median(cost.pread for cost in costs),
            statistics.median(cost.write_fsync for cost in costs),
        )
        for name, costs in found.items()
    }


def render(place: str, costs: dict[str, Cost]) -> str:
    plain = costs["plain"]
    lines = [f"{place}: plain fsync {plain.fsync:.2f} us; what the tracers add, in us"]
    heads = ("to an fsync", "best bursts", "to a pread", "write+fsync")
    lines.append(f"{'':<22}" + "".join(f"{head:>13}" for head in heads))
    for name, cost in costs.items():
        if name != "plain":
            pairs = zip(astuple(cost), astuple(plain), strict=True)
            lines.append(f"{name:<22}" + "".join(f"{a - b:>13.3f}" for a, b in pairs))
    return "\n".join(lines)


def share_of_peer(costs: dict[str, Cost], name: str) -> float:
    """What a tracer adds to an fsync, as a share of what the peer adds."""
    plain = costs["plain"].fsync
    return (costs[name].fsync - plain) / (costs[PEER].fsync - plain)


def judge(user: User, chosen: str, costs: dict[str, Cost]) -> bool:
    for name in user.mechanisms:
        print(f"{name} adds {share_of_peer(costs, name):.2f} of what {PEER} adds to an fsync")
    share = share_of_peer(costs, CHOSEN)
    met = share <= BAR
    print(f"{user.name}: {chosen} adds {share:.2f}; bar {BAR:.2f} {'met' if met else 'missed'}")
    if chosen == "preload":
        added = costs[CHOSEN].fsync_burst - costs["plain"].fsync_burst
        small = added <= LIBRARY_BAR
        print(
            f"{added:.2f} us in the best bursts; bar {LIBRARY_BAR} {'met' if small else 'missed'}"
        )
        return met and small
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on a disk")
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    judged = []
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        tempfile.TemporaryDirectory(dir=options.folder) as disk,
    ):
        for folder in (memory, disk):
            Path(folder).chmod(0o777)
        program = build_program(Path(disk))
        for user in users(Path(disk)):
            chosen = find_chosen(user, Path(disk))
            print(f"as {user.name}, {CHOSEN} is by {chosen}")
            costs = measure_all(user, program, Path(memory) / "f", options.calls, options.turns)
            print(render("tmpfs", costs))
            few = max(options.calls // 50, 100)
            on_disk = measure_all(user, program, Path(disk) / "f", few, options.turns)
            print(render(str(options.folder), on_disk))
            judged.append(judge(user, chosen, costs))
    return 0 if all(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
