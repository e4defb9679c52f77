"""A file system in memory: what the rest of a stack costs when the disk costs nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from diskproof.backings.mounting import start_mount
from diskproof.backings.place import Place, start_run_dir
from diskproof.errors import HostError
from diskproof.records import BackingSpec
from diskproof.units import render_bytes


class TmpfsBacking:
    """``kind = "tmpfs"``, option ``size``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        size = int(spec.option("size"))
        require_memory(size, spec.name)
        assert base
        with start_run_dir(base) as room:
            options = f"size={size},mode=0755,noswap"
            arguments = ["-t", "tmpfs", "-o", options, "diskproof"]
            with start_mount(arguments, room / "mnt") as point:
                yield Place(point, lowest=base.home)


BACKING = TmpfsBacking()


def require_memory(size: int, name: str) -> None:
    """Raises HostError when the host has not that much memory to give away."""
    from psutil import virtual_memory

    available: int = virtual_memory().available
    if size > available * 0.8:
        raise HostError(
            f"there is no memory for backing {name}",
            f"{render_bytes(size)} are asked for, {render_bytes(available)} are available",
            f"set a smaller size in [backings.{name}]",
        )
