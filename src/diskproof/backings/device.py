"""A whole block device that the study names. Everything on it is lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.backings.place import Place, refuse_device
from diskproof.backings.volumes import run_quietly
from diskproof.errors import HostError
from diskproof.process.start import require_tool, run
from diskproof.records import BackingSpec


class DeviceBacking:
    """``kind = "device"``, option ``path``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        device = require_unused(Path(spec.option("path")))
        assert base
        yield Place(base.folder, device=device, name=str(device), lowest=base.home)


BACKING = DeviceBacking()


def require_unused(path: Path) -> Path:
    """A device that nobody uses and that holds nothing known. Raises HostError.

    An exclusive open fails where the device is mounted, swap, or part of LVM or md (open(2)).
    """
    try:
        if not path.is_block_device():
            raise HostError(f"{path} is no block device", "nothing else can be a backing")
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        raise refuse_device(str(path), error) from None
    if found := find_signatures(path):
        raise HostError(
            f"{path} is not empty",
            f"it holds {found}, which a run would destroy",
            f"when that can go: wipefs --all {path}",
        )
    return path


def find_signatures(path: Path) -> str:
    """What wipefs(8) knows of the content: types and labels, empty for nothing known."""
    argv = [require_tool("wipefs", "util-linux"), "--noheadings", "--output", "TYPE,LABEL"]
    done = run([*argv, str(path)], timeout=30)
    return ", ".join(" ".join(line.split()) for line in done.text.splitlines() if line.strip())


def wipe(device: Path) -> str:
    """Take the signatures of a device away; gives why that failed, or nothing."""
    done = run_quietly(["wipefs", "--all", "--quiet", str(device)])
    return "" if done.returncode == 0 else done.error_text
