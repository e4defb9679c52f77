"""What a server does with flushes, counted on a recorded folder before anything is measured.

A client writes through QEMU's own initiator to a server whose file lies in a recorded folder.
A write counts as made durable when the server called fsync or fdatasync, or had the file open for
durable writes, before the next write reached the folder.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from diskproof.backings.place import Place, start_run_dir
from diskproof.backings.server import make_store
from diskproof.drive import NetworkDisk
from diskproof.errors import HostError, RunFailure
from diskproof.process.owner import admit
from diskproof.process.start import require_tool, run
from diskproof.qemu.disk import image_opts
from diskproof.qemu.images import client_cage
from diskproof.recording.folder import start_recording
from diskproof.recording.log import ACKNOWLEDGE, FSYNC, SYNC_WRITE, WRITE, Frame, read_frames
from diskproof.records import Check

WRITES = 5
DISK_BYTES = 64 << 20
SECONDS = 30.0
_STEP = 64 << 10
_END = "end"
# Each way with what follows a write in qemu-io's words.
WAYS: Mapping[str, tuple[str, ...]] = {
    "flushes passed on": ("write -q {at} 4k", "flush"),
    "FUA writes made durable": ("write -q -f {at} 4k",),
    "plain writes made durable": ("write -q {at} 4k",),
}


@dataclass(frozen=True)
class FlushProof:
    """Writes of each way that the server made durable, of ``WRITES``; or why nobody knows."""

    durable: Mapping[str, int] = field(default_factory=dict)
    obstacle: str = ""

    def __str__(self) -> str:
        if self.obstacle:
            return f"flushes: not measured, {self.obstacle}"
        return ", ".join(f"{way}: {count} of {WRITES}" for way, count in self.durable.items())

    def as_checks(self) -> tuple[Check, ...]:
        """Facts that are kept with a run; none of them is asked for."""
        source = "fsyncs and durable writes that a recorded folder saw"
        if self.obstacle:
            return (Check("server: flushes", "known", "not measured", self.obstacle, True),)
        return tuple(
            Check(f"server: {way}", "measured", f"{count} of {WRITES}", source, True)
            for way, count in self.durable.items()
        )


def prove_flushes(
    base: Place, serve: Callable[[Path, Path], AbstractContextManager[NetworkDisk]]
) -> FlushProof:
    """Measure a server. ``serve`` starts it, given a run's folder and the file behind the disk.

    Raises HostError or RunFailure when the server does not work; where nothing can be recorded, the
    proof says so.
    """
    # What is served from a device is shown with a file beside it: only files are recorded.
    with start_run_dir(Place(base.folder)) as folder:
        files = _make_files(folder)
        store = make_store(files, DISK_BYTES)
        with ExitStack() as stack:
            try:
                recording = stack.enter_context(start_recording(files, folder))
            except HostError as error:
                return FlushProof(obstacle=f"{error.what}: {error.why}")
            with serve(folder, recording.folder / store.name) as disk:
                for way, commands in WAYS.items():
                    recording.acknowledge(way)
                    _write(disk, commands)
                    recording.acknowledge(_END)
        return FlushProof(dict(count_durable(read_frames(recording.log))))


def _make_files(folder: Path) -> Path:
    files = folder / "files"
    files.mkdir(mode=0o700)
    admit(files)
    return files


def _write(disk: NetworkDisk, commands: tuple[str, ...]) -> None:
    """``WRITES`` times, and a last plain write that ends the last one's turn."""
    words = [word.format(at=at * _STEP) for at in range(WRITES) for word in commands]
    words.append(f"write -q {WRITES * _STEP} 4k")
    argv = [
        require_tool("qemu-io", "qemu-utils"),
        *("--image-opts", "-t", "writeback"),
        *(part for word in words for part in ("-c", word)),
        image_opts(disk),
    ]
    space = disk.namespace
    done = run(
        argv,
        timeout=SECONDS,
        cwd=disk.folder,
        check=False,
        confined=True,
        cage=client_cage(space),
        network=space,
    )
    if done.returncode != 0 or done.error_text:
        why = done.error_text or done.text
        raise RunFailure("tool", "the server of a backing does not take writes", why[-2000:])


def count_durable(frames: Iterable[Frame]) -> Iterator[tuple[str, int]]:
    """Ways with the writes that were durable before the next one."""
    way, writes, durable = "", 0, set[int]()
    for frame in frames:
        if frame.kind == ACKNOWLEDGE:
            text = frame.payload.decode("utf-8", "replace")
            if text == _END:
                yield way, len([at for at in durable if at <= WRITES])
            way, writes, durable = text, 0, set()
        elif frame.errno:
            continue
        elif frame.kind == WRITE:
            writes += 1
            if frame.flags & SYNC_WRITE:
                durable.add(writes)
        elif frame.kind == FSYNC and writes:
            durable.add(writes)
