"""What watching costs: CPU time and memory of our monitor, dool and dstat, in turns.

Each shows the same columns ten times, a second apart, into a pipe. Two figures, medians over rounds
in changing order: user and system time of the whole run for each line, start included, as one who
types `dstat 1 10` pays it; and of each further line once it runs (/proc/PID/schedstat). The second
is mostly the kernel's: waking up and making the text of /proc. The row ``floor`` shows that: ours
with nothing but /proc/loadavg. No program can be below it, so the bar there is half of the
cheapest peer, and a tenth for the whole run; exits with 1 when one is missed, or when ours needs
more than 10 MiB or 0.3 % of a CPU.

The peers take whole seconds only: at shorter periods ours stands alone.

Peers are installed by hand: ``apt-get install dstat``; dool from PyPI (``pip install dool``) or its
packages. What is not there is left out; with none the benchmark exits with 3.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from diskproof.process.native import require_native

BAR_RUN = 1 / 10
BAR_FURTHER = 1 / 2
BAR_MIB = 10.0
BAR_PERCENT = 0.3
COLUMNS = ("-cdngy", "-cdngymlpsri", "-cdngy --full")
SHORT_PERIODS = (0.1, 0.01)
HEADER = 2  # lines
KIB = 1024.0


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU time for each line; ``rss`` is the most that was resident."""

    run: float
    further: float
    rss_mib: float


def measure(argv: Sequence[str], lines: int) -> Cost:
    """One run of so many lines."""
    with subprocess.Popen(
        [*argv, str(lines)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        try:
            read_lines(child.stdout, HEADER + 1)
            before = cpu_nanoseconds(child.pid)
            read_lines(child.stdout, lines - 2)
            after = cpu_nanoseconds(child.pid)
            rss = peak_kib(child.pid) / KIB
            child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if child.returncode is None:
                child.kill()
    whole = (usage.ru_utime + usage.ru_stime) * 1e3
    return Cost(whole / lines, (after - before) / (lines - 2) / 1e6, rss)


def read_lines(stream: IO[bytes], count: int) -> None:
    for _ in range(count):
        if not stream.readline():
            raise SystemExit("a program ended early")


def cpu_nanoseconds(pid: int) -> int:
    """Of all its threads."""
    tasks = Path("/proc", str(pid), "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def peak_kib(pid: int) -> int:
    for line in Path("/proc", str(pid), "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise SystemExit(f"process {pid} has no memory")


def find_programs(dool: str) -> dict[str, list[str]]:
    peers = {"dool": shutil.which(dool), "dstat": shutil.which("dstat")}
    found = {name: [path, "--nocolor"] for name, path in peers.items() if path}
    return {"ours": [str(require_native("diskproof-monitor")), "--nocolor"], **found}


def compare(programs: dict[str, list[str]], columns: str, rounds: int, lines: int) -> bool:
    """Print one table; whether ours is cheap enough."""
    argvs = {name: [*argv, *columns.split(), "1"] for name, argv in programs.items()}
    argvs["floor"] = [*programs["ours"], "-l", "1"]
    costs: dict[str, list[Cost]] = {name: [] for name in argvs}
    names = list(argvs)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            costs[name].append(measure(argvs[name], lines))
    medians = {name: median(runs) for name, runs in costs.items()}
    ours = medians["ours"]
    print(f"\n{columns}, {lines} lines a second apart, {rounds} rounds; CPU time a line")
    for name, cost in medians.items():
        print(
            f"  {name:6} whole run {cost.run:7.3f} ms ({ours.run / cost.run:6.3f})"
            f"   further line {cost.further:7.3f} ms ({ours.further / cost.further:6.3f})"
            f"   {cost.rss_mib:5.1f} MiB"
        )
    peers = [medians[name] for name in programs if name != "ours"]
    return (
        ours.run <= BAR_RUN * min(peer.run for peer in peers)
        and ours.further <= BAR_FURTHER * min(peer.further for peer in peers)
        and ours.further / 10 <= BAR_PERCENT
        and ours.rss_mib <= BAR_MIB
    )


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.run for cost in costs),
        statistics.median(cost.further for cost in costs),
        statistics.median(cost.rss_mib for cost in costs),
    )


def show_short_periods(argv: Sequence[str], rounds: int) -> None:
    print(f"\n{COLUMNS[0]} more often than the peers can")
    for period in SHORT_PERIODS:
        lines = max(20, round(3 / period))
        command = [*argv, *COLUMNS[0].split(), str(period)]
        cost = median([measure(command, lines) for _ in range(rounds)])
        share = cost.further / 10 / period
        print(
            f"  {period:5} s {cost.further:8.3f} ms a further line {cost.rss_mib:6.1f} MiB"
            f"   {share:.2f} % of one CPU"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=10)
    parser.add_argument("--dool", default="dool", help="its program, if not on PATH")
    options = parser.parse_args()
    programs = find_programs(options.dool)
    if len(programs) == 1:
        print("neither dool nor dstat is installed", file=sys.stderr)
        return 3
    print(f"{os.uname().release}, {os.cpu_count()} CPUs")
    good = [compare(programs, columns, options.rounds, options.lines) for columns in COLUMNS]
    show_short_periods(programs["ours"], options.rounds)
    passed = all(good)
    print(
        f"\n{'met' if passed else 'MISSED'}: at most {BAR_RUN:.2f} of the cheapest peer for a run,"
        f" {BAR_FURTHER:.2f} for a further line, {BAR_PERCENT} % of a CPU, {BAR_MIB:g} MiB"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
