"""What passes through how many files, seen by running it; see ``tests/shape/walks.py``."""

from __future__ import annotations

from pathlib import Path

from shape.ceilings import check_figures, read_ceilings
from shape.figures import measure_walks
from shape.tree import Tree

ROOT = Path(__file__).parent.parent.parent


def test_levels_and_verdicts_pass_no_more_files_than_their_ceilings() -> None:
    assert check_figures(measure_walks(Tree(ROOT)), read_ceilings()) == []
