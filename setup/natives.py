"""The programs of native/: built by cargo, and where each belongs in an installation."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS, PARTS = "bin", "libexec/diskproof"
OF_GUESTS = ("diskproof-agent", "diskproof-poweroff")
"""Each is a guest's /init: nobody starts them on a host."""
OF_CLONES = ("diskproof-poweroff",)
"""What tests and benchmarks hold a guest's boot against: of no use to who has no clone."""


def build_natives() -> dict[str, Path]:
    """Where each belongs, such as ``bin/diskproof-monitor``, and the file as cargo left it.

    Raises CalledProcessError when cargo does, which has said why.
    """
    _cargo("build", "--quiet", "--release", "--locked")
    listing = _cargo("metadata", "--no-deps", "--locked", "--format-version", "1")
    workspace = json.loads(listing)
    folder = Path(workspace["target_directory"]) / "release"
    return {place: folder / Path(place).name for place in sorted(_places(workspace))}


def _cargo(*words: str) -> bytes:
    # From there it finds its settings.
    argv = [ROOT / "setup" / "cargo", *words]
    return subprocess.run(argv, cwd=ROOT / "native", check=True, stdout=subprocess.PIPE).stdout


def _places(workspace: dict[str, list[dict[str, list[dict[str, str]]]]]) -> Iterator[str]:
    for package in workspace["packages"]:
        for target in package["targets"]:
            if "bin" in target["kind"]:
                yield f"{PARTS if target['name'] in OF_GUESTS else TOOLS}/{target['name']}"
            if "cdylib" in target["kind"]:
                yield f"{PARTS}/lib{target['name']}.so"


def install(prefix: Path) -> None:
    """Into an environment, in place of what an earlier build left there."""
    natives = build_natives()
    shutil.rmtree(prefix / PARTS, ignore_errors=True)
    for old in (prefix / TOOLS).glob("diskproof-*"):
        old.unlink()
    for place, built in natives.items():
        (prefix / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, prefix / place)
        print(place)


if __name__ == "__main__":
    install(Path(sys.prefix))
