"""File systems in memory for tests: small, full, read-only, without direct I/O."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.backings.mounting import start_unmounting
from diskproof.process.start import run


@contextmanager
def start_memory_disk(
    folder: Path, options: str = "rw", kind: str = "tmpfs", required: bool = True
) -> Iterator[Path]:
    """A file system in memory at ``folder``; requires root. If it is not ``required``, a host that
    does not let us mount it is skipped with the reason."""
    if not required and os.geteuid() != 0:
        pytest.skip("needs root to mount")
    folder.mkdir(exist_ok=True)
    argv = ["mount", "-t", kind, "-o", options, "diskproof-test", str(folder)]
    done = run(argv, timeout=30, check=required)
    if done.returncode != 0:
        pytest.skip(f"{kind} cannot be mounted here: {done.error_text}")
    with start_unmounting(folder):
        yield folder
