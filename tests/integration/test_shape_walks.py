"""What passes through how many files, seen by running it (``tests/shape/walks.py``).

Requires root, /dev/fuse, qemu-storage-daemon, fio and the native programs.
"""

import os
import shutil
from pathlib import Path

import pytest

from shape.ceilings import check_figures, read_ceilings
from shape.figures import measure_walks
from shape.tree import Tree

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
_MISSING = [tool for tool in ("qemu-storage-daemon", "fio") if shutil.which(tool) is None]
_READY = not _MISSING and os.access("/dev/fuse", os.W_OK)


@pytest.mark.skipif(not _READY, reason=f"needs {_MISSING or '/dev/fuse'}")
def test_levels_and_verdicts_pass_no_more_files_than_their_ceilings() -> None:
    assert check_figures(measure_walks(Tree(ROOT)), read_ceilings()) == []
