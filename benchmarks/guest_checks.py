"""Crash states a second that checks in guests judge: each guest booted, or gone on from one boot.

Records a ledger of files on ext4 (or another: ``--filesystem``) in a guest, then judges the state
at its end again and again, in turns: by a check that is started anew, which boots its guest, and by
one that stays. Prints medians and their ratio, and the states a second of as many staying checks at
once as there are processors. Exits with 1 below the bar.

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
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from diskproof.crash.writers import load_writer
from support.written import make_cell, read_acks, start_written

BAR = 5.0
"""States a second of two processors with little else to do."""
SIZES = {"ext4": 0, "xfs": 320 << 20, "btrfs": 128 << 20}


class Check:
    """A check that stays."""

    def __init__(self, process: subprocess.Popen[str], question: str) -> None:
        self.process, self.question = process, question

    def ask(self) -> float:
        """Seconds for one state, which must be kept."""
        assert self.process.stdin and self.process.stdout
        began = time.monotonic()
        self.process.stdin.write(self.question)
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("0"):
            raise SystemExit(f"the check says {answer!r}")
        return time.monotonic() - began


@contextmanager
def start_check(argv: list[str], room: Path, question: str) -> Iterator[Check]:
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=room, text=True
    ) as process:
        yield Check(process, question)
        assert process.stdin
        process.stdin.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--filesystem", choices=SIZES, default="ext4")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    kind, processors = options.filesystem, os.cpu_count() or 1
    cell = make_cell(
        "ledger-fs", "guest", size=SIZES[kind], cache="none", bus="virtio-blk", filesystem=kind
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, ExitStack() as stack:
        recorded = stack.enter_context(start_written(cell, Path(scratch)))
        acks = recorded.room / "promised"
        acks.write_text("".join(f"{line}\n" for line in read_acks(recorded)))
        argv = load_writer("ledger-fs").check(cell)["argv"]
        assert isinstance(argv, list)
        question = f"{recorded.files}\t{acks}\n"
        staying = [
            stack.enter_context(start_check(argv, recorded.room, question))
            for _ in range(processors)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(processors))
        list(pool.map(Check.ask, staying))  # each boots its guest
        booted, goes_on = [], []
        for _ in range(options.rounds):
            with start_check(argv, recorded.room, question) as anew:
                booted.append(anew.ask())
            goes_on.append(staying[0].ask())
        began = time.monotonic()
        list(pool.map(lambda check: [check.ask() for _ in range(options.rounds)], staying))
        rate = processors * options.rounds / (time.monotonic() - began)
    one, other = statistics.median(booted), statistics.median(goes_on)
    print(f"{kind}: booted {one:.2f} s, gone on {other:.2f} s, {one / other:.1f} times as fast")
    print(f"{kind}: {rate:.2f} states/s by {processors} checks at once, bar {BAR:g}")
    return 0 if rate >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
