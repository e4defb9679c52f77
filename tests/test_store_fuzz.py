"""40 damaged stores, of the 5,000 that ``benchmarks/hostile_stores.py`` makes: each is opened, or
refused by a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

from diskproof.process.start import run

ROOT = Path(__file__).resolve().parents[1]


def test_no_damaged_store_ends_a_verb_otherwise_than_with_a_sentence() -> None:
    argv = [sys.executable, str(ROOT / "benchmarks/hostile_stores.py"), "40", "13"]
    done = run(argv, timeout=300, check=False)
    assert done.returncode == 0, done.text + done.error_text
    assert "40 stores" in done.text and "0 broke the bar" in done.text
