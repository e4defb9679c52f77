"""Crash states a second that checks in guests judge, each by a booted one or by one that stays.

Records a ledger of files (or ``--writer postgres``) on ext4 (or another: ``--filesystem``) in a
guest, then judges the state at its end again and again, in turns: by a check that is started anew,
which boots its guest; by one that stays, whose guest stays as long as states are kept; and by that
with a promise too many, so that a fresh guest has the last word. Prints medians with the processor
seconds that they took, and the states a second of as many staying checks at once as there are
processors. Exits with 1 below the bar.

Requires root, /dev/fuse, and the built guest.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from diskproof.crash.writers import load_writer
from support.written import make_cell, read_acks, start_written

BARS = {"ledger-fs": 5.0, "postgres": 1.0}
"""States a second of two processors with little else to do."""
SIZES = {
    ("ledger-fs", "ext4"): 0,
    ("ledger-fs", "xfs"): 320 << 20,
    ("ledger-fs", "btrfs"): 128 << 20,
    ("postgres", "ext4"): 96 << 20,
}


class Taken(NamedTuple):
    """What a verdict took: seconds on the clock, and of processors."""

    clock: float
    processors: float


class Check:
    """A check that stays."""

    def __init__(self, process: subprocess.Popen[str], room: Path, state: Path) -> None:
        self.process, self._room, self._state = process, room, state

    def ask(self, promises: str = "kept") -> Taken:
        """Judge the state, which must be as the name of the promises says."""
        assert self.process.stdin and self.process.stdout
        began, used = time.monotonic(), read_processors(self.process.pid)
        self.process.stdin.write(f"{self._state}\t{self._room / promises}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("0" if promises == "kept" else "1 3 "):
            raise SystemExit(f"the check says {answer!r}")
        return Taken(time.monotonic() - began, read_processors(self.process.pid) - used)


def read_processors(root: int) -> float:
    """Processor seconds of a process and of all that it has started, as far as they are known."""
    times: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            times[int(path.parent.name)] = int(words[1]), sum(map(int, words[11:15]))
    total = 0
    for number, (_, ticks) in times.items():
        above = number
        while above != root and above in times:
            above = times[above][0]
        total += ticks if above == root else 0
    return total / os.sysconf("SC_CLK_TCK")


def more_promised(acks: list[str]) -> list[str]:
    """The same promises and one of three more."""
    head, _, number = acks[-1].rpartition(" ")
    return [*acks, f"{head} {int(number) + 3}"]


@contextmanager
def start_check(argv: list[str], room: Path, state: Path) -> Iterator[Check]:
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=room, text=True
    ) as process:
        yield Check(process, room, state)
        assert process.stdin
        process.stdin.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--writer", choices=BARS, default="ledger-fs")
    parser.add_argument("--filesystem", choices=("ext4", "xfs", "btrfs"), default="ext4")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    writer, kind, processors = options.writer, options.filesystem, os.cpu_count() or 1
    if (writer, kind) not in SIZES:
        parser.error(f"{writer} on {kind} is not measured here")
    levels = {"cache": "none", "bus": "virtio-blk", "filesystem": kind}
    cell = make_cell(writer, "guest", size=SIZES[writer, kind], **levels)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, ExitStack() as stack:
        recorded = stack.enter_context(start_written(cell, Path(scratch)))
        acks = [line for line in read_acks(recorded) if line.startswith(writer.partition("-")[0])]
        for name, lines in (("kept", acks), ("lost", more_promised(acks))):
            (recorded.room / name).write_text("".join(f"{line}\n" for line in lines))
        argv = load_writer(writer).check(cell)["argv"]
        assert isinstance(argv, list)
        asked = (argv, recorded.room, recorded.files)
        staying = [stack.enter_context(start_check(*asked)) for _ in range(processors)]
        pool = stack.enter_context(ThreadPoolExecutor(processors))
        list(pool.map(Check.ask, staying))  # each boots its guest
        taken: dict[str, list[Taken]] = {"booted": [], "kept": [], "lost": []}
        for _ in range(options.rounds):
            with start_check(*asked) as anew:
                taken["booted"].append(anew.ask())
            taken["lost"].append(staying[0].ask("lost"))
            staying[0].ask()  # by a guest that stays from now on
            taken["kept"].append(staying[0].ask())
        list(pool.map(Check.ask, staying))
        began, used = time.monotonic(), read_processors(os.getpid())
        list(pool.map(lambda check: [check.ask() for _ in range(options.rounds)], staying))
        count, clock = processors * options.rounds, time.monotonic() - began
        each = (read_processors(os.getpid()) - used) / count
    for name, values in taken.items():
        clocks, own = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{writer} on {kind}: {name} {clocks:.2f} s, {own:.2f} s of processors")
    rate, bar = count / clock, BARS[writer]
    print(
        f"{writer} on {kind}: {rate:.2f} states/s by {processors} checks at once, "
        f"{each:.2f} s of processors each, bar {bar:g}"
    )
    return 0 if rate >= bar else 1


if __name__ == "__main__":
    sys.exit(main())
