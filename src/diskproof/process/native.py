"""Where our native programs are: installed, or just built in a source checkout."""

import sys
from pathlib import Path

from diskproof.errors import HostError

_SOURCE = Path(__file__).resolve().parents[3]


def native_folders() -> tuple[Path, ...]:
    """Folders that may hold them, best first: the installation's, then the workspace's build."""
    installed = (Path(sys.prefix) / "bin", Path(sys.prefix) / "libexec" / "diskproof")
    workspace = _SOURCE / "native"
    built = (workspace / "target" / "release",)
    return installed + built if (workspace / "Cargo.toml").is_file() else installed


def find_native(name: str) -> Path | None:
    """Absolute path of a native program such as ``diskproof-monitor``, or None."""
    paths = (folder / name for folder in native_folders())
    return next((path for path in paths if path.is_file()), None)


def require_native(name: str) -> Path:
    """As ``find_native``, but HostError when there is none."""
    if found := find_native(name):
        return found
    places = ", ".join(map(str, native_folders()))
    raise HostError(f"{name} is not there", f"it was looked for in {places}", "make setup")
