"""Building twice: a clone on another path, of another user's habits, gives the same bytes."""

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from diskproof.process.start import run
from support.install_systems import DIST, MINUTES, newest

ROOT = Path(__file__).parent.parent.parent


def test_wheel_and_sources_are_the_same_from_another_path() -> None:
    listing = run(["git", "ls-files", "-z"], timeout=30, cwd=ROOT).text
    with tempfile.TemporaryDirectory(prefix="diskproof-another path-", dir="/var/tmp") as folder:
        # The wheel says which commit it is of, and whether files differ from it.
        run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), folder], timeout=300)
        for name in filter(None, listing.split("\0")):
            Path(folder, name).unlink(missing_ok=True)
            if (ROOT / name).is_file():
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, Path(folder, name))
        subprocess.run(
            [sys.executable, "setup/backend.py", "out"],
            cwd=folder,
            check=True,
            env={**os.environ, "TZ": "Asia/Kolkata", "LC_ALL": "C"},
            umask=0o077,
            timeout=90 * MINUTES,
        )
        for pattern, megabytes in (("*.whl", 12), ("*.tar.gz", 2)):
            name = newest(pattern)
            ours, theirs = DIST / name, Path(folder, "out", name)
            size = ours.stat().st_size
            logging.getLogger(__name__).warning(f"{name}: {size:,} bytes, {_digest(ours)}")
            assert _digest(ours) == _digest(theirs)
            assert size <= megabytes * 1_000_000


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
