"""What is installed here, for programs: ``diskproof --version --json``."""

import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import diskproof
from diskproof.errors import DiskproofError
from diskproof.process.native import native_folders
from diskproof.process.start import run

if TYPE_CHECKING:
    from diskproof.cli.outputs import VersionJson

NUMBERS = dict.fromkeys(
    [
        "advise",
        "audit",
        "audit-measure",
        "compare",
        "crash-apps",
        "crash-block-log",
        "crash-flushes",
        "crash-reproduce",
        "crash-study",
        "crash-unsynced",
        "doctor",
        "doctor-walls",
        "factors",
        "guest-export",
        "guest-import",
        "monitor",
        "nocache",
        "plan",
        "quick",
        "rank",
        "run",
        "show",
        "stability",
        "status",
        "sync-drop",
        "sync-trace",
        "tiles",
        "version",
    ],
    1,
)
"""Of the schemas in docs/schemas. One is raised where what is printed changes (docs/json.md)."""

_PACKAGE = Path(diskproof.__file__).parent
COMMIT = _PACKAGE / "commit.txt"
"""Written where a wheel or the sources are packed (setup/backend.py); a clone asks git."""


def describe_version() -> "VersionJson":
    """All that tells this installation from others."""
    from diskproof.store.tables import SCHEMA_VERSION

    return {
        "version": diskproof.__version__,
        "commit": find_commit(),
        "python": platform.python_version(),
        "store_schema": SCHEMA_VERSION,
        "outputs": NUMBERS,
        "programs": {
            name: {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in sorted(_find_programs().items())
        },
    }


def find_commit() -> str | None:
    """The commit that this was made from, ``-dirty`` behind it where files differ from it."""
    if COMMIT.is_file():
        return COMMIT.read_text().strip() or None
    root = _PACKAGE.parent.parent
    if not (root / ".git").exists():
        return None
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        return run(
            ["git", "--no-optional-locks", "-C", str(root), *describe], timeout=10
        ).text.strip()
    except DiskproofError:  # no git here, or it does not trust who owns the clone
        return None


def _find_programs() -> dict[str, Path]:
    """The programs of native/ by their names, the libraries to preload among them."""
    patterns = ("diskproof-*", "libdiskproof_*.so")
    found: dict[str, Path] = {}
    for folder in native_folders():
        for path in (path for pattern in patterns for path in folder.glob(pattern)):
            if path.is_file() and path.suffix != ".d":
                found.setdefault(path.name, path)
    return found
