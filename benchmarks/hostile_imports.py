"""Damaged files given to ``import fio`` and ``import kvm-perf``, and what became a study given to a
verb that reads: the bar is that of ``hostile_stores.py``.

``hostile_imports.py COUNT [SEED [few-pages]]`` prints the figures, and every file that broke the
bar. The true files are kvm-perf's text and answers of a real fio (``tests/golden``): json and
json+, one job, two and three clones.
"""

import gzip
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads is not to be forked
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from hostile_runs import Tally, load_all, run_forked  # noqa: E402
from hostile_stores import PAGES, VERBS  # noqa: E402
from support.import_mutations import mutate_bytes, mutate_fio  # noqa: E402


def _make_files(
    answers: Sequence[Any], text: bytes, folder: Path, dice: random.Random
) -> list[str]:
    """Damaged files in the folder; the words of ``import`` for them."""
    if dice.random() < 0.3:
        (folder / "kvm-perf.txt").write_bytes(mutate_bytes(text, dice))
        return ["kvm-perf", "kvm-perf.txt"]
    names = [f"fio-{number}.json" for number in range(dice.choice((1, 1, 1, 3)))]
    for name in names:
        (folder / name).write_bytes(mutate_fio(dice.choice(answers), dice))
    return ["fio", *names]


def main(count: int, seed: int, few_pages: bool) -> int:
    load_all()
    imports, stores = Tally("files or sets of files"), Tally("studies made of them")
    answers = json.loads(gzip.decompress((ROOT / "tests/golden/fio-answers.json.gz").read_bytes()))
    text = (ROOT / "tests/golden/kvm-perf-sample.txt").read_bytes()
    with (
        tempfile.TemporaryDirectory(prefix="diskproof-benchmark-") as name,
        suppress(KeyboardInterrupt),
    ):
        folder = Path(name)
        for number in range(count):
            dice = random.Random(f"{seed} {number}")
            for old in folder.iterdir():
                old.unlink()
            words = _make_files(answers, text, folder, dice)
            outcome = run_forked(["import", *words], folder)
            imports.note(outcome, f"{seed} {number}: import {' '.join(words)}")
            if outcome.status == 0:
                page = number % 50 == 0 if few_pages else dice.random() < 2 / 19
                verb = dice.choice(PAGES[:1] if page else VERBS)
                stores.note(run_forked(verb, folder), f"{seed} {number}: {' '.join(verb)}")
    imports.print_sum()
    stores.print_sum()
    return 1 if imports.faults or stores.faults else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:3]]
    sys.exit(main(*numbers, *(2000, 1)[len(numbers) :], few_pages=sys.argv[3:] == ["few-pages"]))
