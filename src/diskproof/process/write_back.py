"""A file on the disk below, whatever that disk does."""

import os
from pathlib import Path

from diskproof.process.start import Completed, run

LONGEST = 3600.0


def write_back(*paths: Path, timeout: float = LONGEST) -> Completed:
    """sync(1) of files, in a process of its own: a disk that hangs holds that, and not us. Raises
    RunFailure ``timeout``; what else fails is in the answer."""
    argv = ["sync", "--", *map(str, paths)]
    return run(argv, timeout=timeout, env={**os.environ, "LC_ALL": "C"}, check=False)
