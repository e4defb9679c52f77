"""fio straight on the backing: what the disk does without a virtual one. The baseline."""

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof import drive
from diskproof.errors import RunFailure
from diskproof.process.cage import CLIENT_CAGE, Cage
from diskproof.process.owner import hand_over_tree
from diskproof.process.start import run
from diskproof.records import Artefact, Check

_BLOCK = 4096


@dataclass
class HostDrive(drive.Drive):
    """A file on the backing. ``direct_obstacle`` is why direct I/O does not work, or empty."""

    path: Path
    run_dir: Path
    direct_obstacle: str

    def run(self, command: drive.Command) -> drive.Execution:
        flush_buffers(self.path)
        disk = seen_from(self.run_dir, self.path)
        return run_here(self.run_dir, command, CLIENT_CAGE.writing(disk))

    def read_back(self) -> tuple[Check, ...]:
        return check_direct(self.direct_obstacle), check_size(self.path, self.facts.size)


@dataclass
class NetworkDrive(drive.Drive):
    """A disk that fio reaches with a client of its own; nothing else on the host can."""

    image: drive.DiskImage
    run_dir: Path

    def run(self, command: drive.Command) -> drive.Execution:
        return run_here(self.run_dir, command, CLIENT_CAGE, self.image.namespace)

    def read_back(self) -> tuple[Check, ...]:
        """fio's client has no settings; what is known of the server is kept with the image."""
        driver = self.image.driver
        engine = self.facts.fio["ioengine"]
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
    def start(self, context: drive.RunContext) -> Iterator[drive.Drive]:
        image = context.image
        if image.format != "raw":
            raise RunFailure(
                "mismatch", f"the host frontend cannot read {image.format}", "fio knows only raw"
            )
        if image.network:
            if not image.network.fio:
                what = f"fio has no client for {image.driver}"
                hint = "set frontend = daemon or guest"
                raise RunFailure("mismatch", what, "only QEMU has", hint)
            facts = drive.DriveFacts(image.size, image.network.fio, image.server_pids)
            yield NetworkDrive(facts, image, context.run_dir)
            return
        obstacle = find_direct_obstacle(image.path)
        fio = libaio_options(seen_from(context.run_dir, image.path), obstacle)
        if image.device:
            fio["invalidate"] = "0"  # its pages are dropped by us: without rights fio may not
        second = str(context.second_disk.path) if context.second_disk else ""
        facts = drive.DriveFacts(image.size, fio, second_disk=second, path=str(image.path))
        yield HostDrive(facts, image.path, context.run_dir, obstacle)

    def artefacts(self, context: drive.RunContext) -> tuple[Artefact, ...]:
        return ()


def libaio_options(path: str, direct_obstacle: str = "") -> dict[str, str]:
    """A fio job's options for a file or block device."""
    direct = "0" if direct_obstacle else "1"
    return {"ioengine": "libaio", "filename": path.replace(":", r"\:"), "direct": direct}


def seen_from(run_dir: Path, disk: Path) -> str:
    """A disk as commands see it that work in a scratch folder of a run: who has no rights may not
    search the folders above."""
    return f"../{os.path.relpath(disk, run_dir)}"


def run_here(
    run_dir: Path, command: drive.Command, cage: Cage, network: Path | None = None
) -> drive.Execution:
    """Run it on this host, in a scratch folder in ``run_dir`` that goes at the end. fio has no
    rights, and is in ``cage`` and ``network``: it reads what servers answer. Other programs are
    the study's own, and run as who has started it."""
    confined = command.argv[0] == "fio"
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=run_dir) as name:
        scratch = Path(name)
        for file, content in command.files.items():
            (scratch / file).parent.mkdir(parents=True, exist_ok=True)
            (scratch / file).write_bytes(content)
        if confined:
            hand_over_tree(scratch)
        done = run(
            command.argv,
            timeout=command.timeout,
            cwd=scratch,
            check=False,
            confined=confined,
            cage=cage if confined else None,
            network=network,
        )
        found = {file: read_inside(scratch, file) for file in command.collect}
    brought = {file: content for file, content in found.items() if content is not None}
    return drive.Execution(done.returncode, done.stdout, done.stderr, done.seconds, brought)


def flush_buffers(disk: Path) -> None:
    """Drop the pages of a block device, as fio with rights would before it starts."""
    if disk.is_block_device():
        run(["blockdev", "--flushbufs", str(disk)], timeout=60, check=False)


def read_inside(scratch: Path, name: str) -> bytes | None:
    """A file that a program which is not trusted has left, or None: a link leads nowhere."""
    path = scratch / name
    if path.is_symlink() or not path.resolve().is_relative_to(scratch.resolve()):
        return None
    return _read(path) if path.is_file() else None


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(drive.MAX_COLLECTED + 1)
    if len(content) > drive.MAX_COLLECTED:
        raise RunFailure("workload", f"{path.name} is larger than {drive.MAX_COLLECTED >> 20} MiB")
    return content


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
