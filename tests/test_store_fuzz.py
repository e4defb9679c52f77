"""Some of the damaged stores and files for import that ``benchmarks/hostile_stores.py`` and
``hostile_imports.py`` make by the thousand: each is opened, or refused by a sentence."""

import sys
from pathlib import Path

import pytest

from diskproof.process.start import run

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("kind", "count"), [("stores", 50), ("imports", 40)])
def test_no_damage_ends_a_verb_otherwise_than_with_a_sentence(kind: str, count: int) -> None:
    program = str(ROOT / f"benchmarks/hostile_{kind}.py")
    argv = [sys.executable, program, str(count), "13", "few-pages"]
    done = run(argv, timeout=600, check=False)
    assert done.returncode == 0, done.text + done.error_text
    assert f"{count} " in done.text and "0 broke the bar" in done.text
