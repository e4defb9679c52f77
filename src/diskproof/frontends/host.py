"""fio straight on the backing: what the disk does without a virtual one. The baseline."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.drive import DiskImage, Drive, Execution, FioTarget, Machine, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends.commands import run_here
from diskproof.records import Artefact, Check

_BLOCK = 4096


@dataclass
class HostDrive:
    """A file on the backing. ``direct_obstacle`` is why direct I/O does not work, or empty."""

    path: Path
    size: int
    run_dir: Path
    direct_obstacle: str
    pids: Sequence[int] = ()
    machine: Machine | None = None
    source: str = ""

    def fio_target(self) -> FioTarget:
        return FioTarget(
            {
                "ioengine": "libaio",
                "filename": str(self.path).replace(":", r"\:"),
                "direct": "0" if self.direct_obstacle else "1",
            }
        )

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        collect: Sequence[str] = (),
    ) -> Execution:
        return run_here(self.run_dir, argv, timeout=timeout, files=files or {}, collect=collect)

    def read_back(self) -> tuple[Check, ...]:
        return check_direct(self.direct_obstacle), check_size(self.path, self.size)


@dataclass
class NetworkDrive:
    """A disk that fio reaches with a client of its own; nothing else on the host can."""

    image: DiskImage
    run_dir: Path
    size: int
    pids: Sequence[int]
    machine: Machine | None = None
    source: str = ""

    def fio_target(self) -> FioTarget:
        assert self.image.network
        if not self.image.network.fio:
            what = f"fio has no client for {self.image.driver}"
            raise RunFailure("mismatch", what, "only QEMU has", "set frontend = daemon or guest")
        return FioTarget(self.image.network.fio)

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        collect: Sequence[str] = (),
    ) -> Execution:
        return run_here(self.run_dir, argv, timeout=timeout, files=files or {}, collect=collect)

    def read_back(self) -> tuple[Check, ...]:
        """fio's client has no settings; what is known of the server is kept with the image."""
        driver = self.image.driver
        engine = self.fio_target().options["ioengine"]
        return (Check("client", driver, engine, "fio's ioengine", engine == driver),)


def check_direct(obstacle: str) -> Check:
    """Whether the load goes around the page cache; ``obstacle`` says why it does not."""
    return Check(
        "direct",
        "where the directory allows it",
        f"buffered: {obstacle}" if obstacle else "on",
        "a block read through O_DIRECT",
        True,
    )


def check_size(path: Path, wanted: int) -> Check:
    size = read_size(path)
    return Check("size", str(wanted), str(size), "its end", size >= wanted)


class HostFrontend:
    """The frontend ``host``."""

    name = "host"

    @contextmanager
    def start(self, context: RunContext) -> Iterator[Drive]:
        image = context.image
        if image.format != "raw":
            raise RunFailure(
                "mismatch", f"the host frontend cannot read {image.format}", "fio knows only raw"
            )
        if image.network:
            yield NetworkDrive(image, context.run_dir, image.size, image.server_pids)
            return
        obstacle = find_direct_obstacle(image.path)
        source = str(context.source.path) if context.source else ""
        yield HostDrive(image.path, image.size, context.run_dir, obstacle, source=source)

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        return ()


def read_size(path: Path) -> int:
    """Bytes of a file or block device; a device may be larger than the disk asked for."""
    with path.open("rb") as stream:
        return stream.seek(0, os.SEEK_END)


def find_direct_obstacle(path: Path) -> str:
    """Why a file cannot be read around the page cache, empty when it can."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, _BLOCK) as block:  # a page of its own: aligned
                os.preadv(handle, [block], 0)
        finally:
            os.close(handle)
    except OSError as error:
        return f"O_DIRECT is refused: {error.strerror}"
    return ""


FRONTEND = HostFrontend()
