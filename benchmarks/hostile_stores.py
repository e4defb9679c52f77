"""Damaged stores given to the verbs that read: none may end in a traceback, take more than 512 MiB
or more than 10 s of a processor (120 s by the clock); each is opened, or refused by a sentence.

``hostile_stores.py COUNT [SEED [few-pages]]`` prints the figures, and every store that broke the
bar. Stores of every version (``tests/golden/stores``) are damaged in structured and random ways,
one verb each, in processes that fork from this one. ``few-pages``: a page takes seconds, so only
every fiftieth store is made one.
"""

import gzip
import os
import random
import sqlite3
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads is not to be forked
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from hostile_runs import Tally, load_all, run_forked  # noqa: E402
from support.simulated_stores import fill, simulated_cells  # noqa: E402
from support.store_mutations import mutate  # noqa: E402

KINDS = ("results", "runs", "series", "verdicts", "tiles")
VERBS = (
    *(("show", "--all"), ("show", "--all", "--json"), ("rank",), ("factors",), ("stability",)),
    *(("status",), ("status", "--json"), ("rank", "--json"), ("show", "--csv")),
    *(("compare", "cache=none", "cache=unsafe"), ("advise", "--for", "qemu", "--json")),
    *(("export", "-o", "table.csv", "--kind", kind) for kind in KINDS),
    ("export", "-o", "table.xlsx", "--kind", "series"),
)
PAGES = (("report", "-o", "page.html"), ("report", "-o", "page.html", "--study", "disks"))


def _full_store(path: Path) -> bytes:
    """A study of which every chapter of the page has something to tell."""
    factors = {"cache": ("none", "unsafe"), "format": ("raw", "qcow2")}
    fill(path, simulated_cells(factors, ("rand-read", "seq-write")), blocks=3, name="disks")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = delete")
    return path.read_bytes()


def main(count: int, seed: int, few_pages: bool) -> int:
    load_all()
    stores = ROOT / "tests/golden/stores"
    images = [gzip.decompress((stores / f"{n}.sqlite.gz").read_bytes()) for n in (1, 2, 3)]
    tally = Tally("stores")
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
            page = number % 50 == 0 if few_pages else dice.random() < 2 / 19
            verb = dice.choice(PAGES if page else VERBS)
            outcome = run_forked([*verb, "--store", str(store)], folder)
            tally.note(outcome, f"{seed} {number}: {' '.join(verb)}: {done}")
    tally.print_sum()
    return 1 if tally.faults else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:3]]
    sys.exit(main(*numbers, *(5000, 1)[len(numbers) :], few_pages=sys.argv[3:] == ["few-pages"]))
