"""Verbs given what strangers made, each in a process that forks from one that has all modules."""

import collections
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 512 << 20
MOST_SECONDS = 10.0
GIVEN_UP_SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """What became of a verb: its status, its memory, its processor's seconds, what it told."""

    status: int
    peak_bytes: int
    seconds: float
    told: str

    def find_fault(self) -> str:
        if self.status not in (0, 1, 2, 3):
            return f"status {self.status}"
        if "Traceback" in self.told:
            return "traceback"
        if self.status in (2, 3) and not self.told.startswith("diskproof: "):
            return "no sentence"
        if self.peak_bytes > MOST_BYTES:
            return f"{self.peak_bytes >> 20} MiB"
        return f"{self.seconds:.1f} s" if self.seconds > MOST_SECONDS else ""


@dataclass
class Tally:
    """All outcomes so far, and how many of them broke the bar, which are printed."""

    what: str
    began: float = field(default_factory=time.monotonic)
    seen: list[Outcome] = field(default_factory=list)
    faults: int = 0

    def note(self, outcome: Outcome, label: str) -> None:
        self.seen.append(outcome)
        if fault := outcome.find_fault():
            self.faults += 1
            print(
                f"{fault}: {label}",
                *outcome.told.strip().splitlines()[-12:],
                sep="\n  ",
                flush=True,
            )

    def print_sum(self) -> None:
        statuses = collections.Counter(outcome.status for outcome in self.seen)
        answered = ", ".join(f"{n} with status {status}" for status, n in sorted(statuses.items()))
        seconds = time.monotonic() - self.began
        heading = f"{len(self.seen)} {self.what} in {seconds:.0f} s"
        print(f"{heading}: {answered}; {self.faults} broke the bar")
        peak = max((outcome.peak_bytes for outcome in self.seen), default=0)
        longest = max((outcome.seconds for outcome in self.seen), default=0.0)
        print(f"at most {peak >> 20} MiB and {longest:.1f} s of a processor")


def run_forked(argv: Sequence[str], folder: Path) -> Outcome:
    """A verb in a process of its own, which has all modules already."""
    child = os.fork()
    if child == 0:
        os._exit(_work(list(argv), folder))
    _, status, used = os.wait4(child, 0)
    told = (folder / "stderr").read_text(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code, used.ru_maxrss << 10, used.ru_utime + used.ru_stime, told)


def _work(argv: list[str], folder: Path) -> int:
    from diskproof.cli.app import run_verb

    status = 70
    try:
        os.chdir(folder)
        signal.alarm(GIVEN_UP_SECONDS)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), number)
        status = run_verb(argv)
    except BaseException:  # noqa: BLE001 - what would be a traceback is what is looked for
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def load_all() -> None:
    """Import what the verbs import, so that the processes that fork need not."""
    import jinja2
    import pydantic.fields
    import rich.live
    import scipy.stats
    import typer._adapters

    import diskproof.cli.terminal
    import diskproof.report.compare.find
    import diskproof.report.factors.table
    import diskproof.report.page
    import diskproof.report.stability.table
    import diskproof.report.study_tables
    import diskproof.store.export
    import diskproof.store.formats

    assert all((jinja2, pydantic, rich, scipy, typer, diskproof))
    gc.freeze()
    # Also in the background Ctrl-C ends with the sum so far.
    signal.signal(signal.SIGINT, signal.default_int_handler)
