"""How long each native program takes to start, and what one program for all of them would cost.

Each is started as it is, in turns with the same by way of the smallest program that there is: one
system call that becomes the other. A wheel holds no links, so each name would have to be such a
file, if one program served all. FOLDER: compared with the programs of another build instead. Prints
medians in milliseconds; exits with 1 when the other way is slower by more than the bar.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.process.native import native_folders

BAR_MS = 0.1
Times = tuple[float, float]
"""Milliseconds: of wall and of processor time."""
HANDS_OVER = """
__asm__(".globl _start\\n_start:\\n"
    "mov (%rsp), %rax\\n lea 8(%rsp), %rsi\\n lea 16(%rsp, %rax, 8), %rdx\\n"
    "lea path(%rip), %rdi\\n mov $59, %eax\\n syscall\\n"
    "mov $127, %edi\\n mov $60, %eax\\n syscall\\n"
    "path: .asciz \\"" PATH "\\"\\n");
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=301)
    asked = parser.parse_args()
    programs = [path for path in sorted(native_folders()[0].glob("diskproof-*")) if _is_elf(path)]
    slower = False
    print(f"{'start to end of --help, ms':28} {'as it is':>15} {'other':>15} {'differs by':>15}")
    print(" " * 28 + f" {'wall':>7} {'cpu':>7}" * 3)
    with _others(programs, asked.other) as others:
        for program, other in zip(programs, others, strict=True):
            rounds = list(_take_turns(program, other, asked.rounds))
            columns = zip(*(_figures(*each) for each in rounds), strict=True)
            medians = [statistics.median(each) for each in columns]
            slower |= min(medians[4:]) > BAR_MS
            print(f"{program.name:28}" + "".join(f" {each:7.3f}" for each in medians))
    return int(slower)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


@contextmanager
def _others(programs: list[Path], folder: Path | None) -> Iterator[list[Path]]:
    if folder:
        yield [folder / program.name for program in programs]
        return
    with tempfile.TemporaryDirectory() as made:
        source = Path(made, "hands_over.c")
        source.write_text(HANDS_OVER)
        for program in programs:
            flags = (f'-DPATH="{program}"', "-static", "-nostdlib", "-s", "-o")
            subprocess.run(["cc", source, *flags, Path(made, program.name)], check=True)
        yield [Path(made, program.name) for program in programs]


def _figures(ours: Times, theirs: Times) -> Iterator[float]:
    yield from (*ours, *theirs)
    yield from (b - a for a, b in zip(ours, theirs, strict=True))


def _take_turns(first: Path, second: Path, rounds: int) -> Iterator[tuple[Times, Times]]:
    """Which of the two comes first in a round is by chance."""
    chance = random.Random(1)
    for number in range(rounds + 10):
        order = [first, second]
        chance.shuffle(order)
        times = {program: _start(program) for program in order}
        if number >= 10:  # in the page cache by then
            yield times[first], times[second]


def _start(program: Path) -> Times:
    silent = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    to = [(os.POSIX_SPAWN_DUP2, silent, number) for number in (1, 2)]
    began = time.perf_counter_ns()
    pid = os.posix_spawn(program, [program, "--help"], {}, file_actions=to)
    _, _, used = os.wait4(pid, 0)
    wall = (time.perf_counter_ns() - began) / 1e6
    os.close(silent)
    return wall, (used.ru_utime + used.ru_stime) * 1e3


if __name__ == "__main__":
    sys.exit(main())
