"""Damaged stores given to the verbs that read: none may end in a traceback, take more than 512 MiB
or more than 10 s of a processor (30 s by the clock); each is opened, or refused by a sentence.

``hostile_stores.py COUNT [SEED]`` prints the figures, and every store that broke the bar. Stores of
every version (``tests/golden/stores``) are damaged in structured and random ways, one verb each, in
processes that fork from this one.
"""

from __future__ import annotations

import collections
import gzip
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads is not to be forked
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.simulated_stores import fill, simulated_cells  # noqa: E402
from support.store_mutations import mutate  # noqa: E402

MOST_BYTES = 512 << 20
MOST_SECONDS = 10.0
GIVEN_UP_SECONDS = 30
KINDS = ("results", "runs", "series", "verdicts", "tiles")
VERBS = (
    *(("show", "--all"), ("show", "--all", "--json"), ("rank",), ("factors",), ("stability",)),
    *(("status",), ("status", "--json"), ("rank", "--json"), ("show", "--csv")),
    ("compare", "cache=none", "cache=unsafe"),
    *(("export", "-o", "table.csv", "--kind", kind) for kind in KINDS),
    *(("report", "-o", "page.html", *chosen) for chosen in ((), ("--study", "disks"))),
)


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


def run_forked(argv: list[str], folder: Path) -> Outcome:
    """A verb in a process of its own, which has all modules already."""
    child = os.fork()
    if child == 0:
        os._exit(_work(argv, folder))
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


def _load_all() -> None:
    """Import what the verbs import, so that the processes that fork need not."""
    import rich.live
    import scipy.stats

    import diskproof.cli.terminal
    import diskproof.report.compare.find
    import diskproof.report.factors.table
    import diskproof.report.page
    import diskproof.report.stability.table
    import diskproof.report.study_tables
    import diskproof.store.export

    assert all((rich, scipy, diskproof))


def _full_store(path: Path) -> bytes:
    """A study of which every chapter of the page has something to tell."""
    factors = {"cache": ("none", "unsafe"), "format": ("raw", "qcow2")}
    fill(path, simulated_cells(factors, ("rand-read", "seq-write")), blocks=3, name="disks")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = delete")
    return path.read_bytes()


def main(count: int, seed: int) -> int:
    _load_all()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # also in the background: the sum so far
    stores = ROOT / "tests/golden/stores"
    images = [gzip.decompress((stores / f"{n}.sqlite.gz").read_bytes()) for n in (1, 2, 3)]
    seen: list[Outcome] = []
    faults, began = 0, time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="diskproof-benchmark-") as name,
        suppress(KeyboardInterrupt),
    ):
        folder = Path(name)
        images += [_full_store(folder / "full.sqlite")] * 3
        store = folder / "store.sqlite"
        for number in range(count):
            dice = random.Random(f"{seed} {number}")
            for old in folder.iterdir():
                old.unlink()
            done = mutate(dice.choice(images), store, dice)
            argv = [*dice.choice(VERBS), "--store", str(store)]
            outcome = run_forked(argv, folder)
            seen.append(outcome)
            if fault := outcome.find_fault():
                faults += 1
                last = outcome.told.strip().splitlines()[-12:]
                print(f"{seed} {number}: {fault}: {' '.join(argv[:-2])}: {done}", *last, sep="\n  ")
    _tell(seen, faults, time.monotonic() - began)
    return 1 if faults else 0


def _tell(seen: Sequence[Outcome], faults: int, seconds: float) -> None:
    statuses = collections.Counter(outcome.status for outcome in seen)
    answered = ", ".join(f"{n} with status {status}" for status, n in sorted(statuses.items()))
    print(f"{len(seen)} stores in {seconds:.0f} s: {answered}; {faults} broke the bar")
    peak = max((outcome.peak_bytes for outcome in seen), default=0)
    longest = max((outcome.seconds for outcome in seen), default=0.0)
    print(f"at most {peak >> 20} MiB and {longest:.1f} s of a processor")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(given[0] if given else 5000, given[1] if len(given) > 1 else 1))
