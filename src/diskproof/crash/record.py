"""Record one writer in one real stack: image, recorder, frontend, writer, an end in order.

The stack is ended in order after the writer, with a mark in the log before: the records up to the
mark are what QEMU had handed to the host when it might as well have been killed, the whole log is
what an end in order leaves. Nothing that is written after the mark counts for any other fault.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from diskproof.backings import Consent, start_disk_dir
from diskproof.crash.writers import WriterContext, load_writer
from diskproof.drive import DiskImage, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends import load_frontend
from diskproof.lab.deadline import BoundedDrive, Deadline
from diskproof.lab.notes import RunNotes
from diskproof.process.owner import admit
from diskproof.process.start import run
from diskproof.qemu.images import create_image, inspect_image
from diskproof.recording.folder import RECORDER_LOG, Recording, start_recording
from diskproof.recording.log import (
    ACKNOWLEDGE,
    LINE,
    Frame,
    LogSummary,
    copy_log,
    read_frames,
    summarise_log,
)
from diskproof.records import Artefact, BackingSpec, Cell
from diskproof.study.crash import extra_of, writer_of

START_SECONDS = 120.0
MARK = "diskproof: the writer has ended"
"""The acknowledgement that no writer gives: here the records for all faults but one end."""
_FILES, _BASE, _KILLED = "files", "base", "killed.log"


@dataclass(frozen=True)
class Recorded:
    """What a writer left, in a folder that goes with the block of ``start_recorded``.

    ``base`` is the recorded folder from before, ``log`` the whole log, ``killed`` the log up to
    the mark, ``summary`` is of that one. ``files`` is the folder as the end in order left it.
    ``promises`` counts what the writer was promised.
    """

    room: Path
    base: Path
    files: Path
    log: Path
    killed: Path
    summary: LogSummary
    promises: int


@contextmanager
def start_recorded(
    cell: Cell,
    backing: BackingSpec,
    consent: Consent,
    accel: str,
    deadline: Deadline,
    notes: RunNotes,
) -> Iterator[Recorded]:
    """Make the recording of a crash cell; it is there for the length of the block.

    Raises RunFailure as a measured run does, and ``log`` when the recording broke off.
    """
    with start_disk_dir(backing, consent) as room:
        files = make_files(room)
        with notes.phase("create"):
            made = create_image(files, cell, int(cell.workload.option("size")))
            notes.require(inspect_image(made, cell))
            load_writer(writer_of(cell.workload)).prepare(cell, files)
            copy_folder(files, room / _BASE, deadline)
        with notes.phase("record"):
            recording = _record(cell, made, files, room, accel, deadline, notes)
        yield finish_recording(room, files, recording.log, notes)


def finish_recording(room: Path, files: Path, log: Path, notes: RunNotes) -> Recorded:
    """What an ended recording holds. Raises RunFailure ``log`` when it is not whole."""
    notes.keep(_recorder_log(room))
    with notes.phase("read_log"):
        killed = room / _KILLED
        cut_at_mark(log, killed)
        summary, promises = summarise_log(killed), count_promises(killed)
    return Recorded(room, room / _BASE, files, log, killed, summary, promises)


def make_files(room: Path) -> Path:
    """The folder to record; QEMU's user may enter it, as it may the room."""
    files = room / _FILES
    files.mkdir(mode=0o710)
    admit(files)
    return files


def copy_folder(source: Path, target: Path, deadline: Deadline) -> None:
    """Copy what is in a folder; blocks are shared where the file system can, holes stay holes."""
    argv = ["cp", "-a", "--reflink=auto", "--sparse=always", "--", f"{source}/.", str(target)]
    run(argv, timeout=deadline.left())


def _record(
    cell: Cell,
    made: DiskImage,
    files: Path,
    room: Path,
    accel: str,
    deadline: Deadline,
    notes: RunNotes,
) -> Recording:
    """Run the writer in its stack on the recorded folder; gives the recording, ended."""
    frontend = load_frontend(cell.level("frontend"))
    in_guest = cell.level("frontend") == "guest"
    with (
        start_recording(files, room) as recording,
        recording.open_promises() if in_guest else nullcontext() as promises,
    ):
        image = DiskImage(recording.folder / made.path.name, made.format, made.size)
        level = cell.level("accel", "auto")
        context = RunContext(
            cell=cell,
            image=image,
            run_dir=room,
            accel=accel if level == "auto" else level,
            deadline_seconds=min(START_SECONDS, deadline.left()),
            guest_extra=extra_of(cell.workload),
            promises=promises.descriptor if promises else None,
        )
        try:
            _write(cell, context, recording, deadline, notes)
        finally:
            notes.keep(frontend.artefacts(context))
    return recording


def _write(
    cell: Cell, context: RunContext, recording: Recording, deadline: Deadline, notes: RunNotes
) -> None:
    writer = load_writer(writer_of(cell.workload))
    with ExitStack() as stack:
        frontend = load_frontend(cell.level("frontend"))
        drive = stack.enter_context(frontend.start(context))
        notes.require(drive.read_back())
        bounded = BoundedDrive(drive, deadline)
        writer.write(WriterContext(cell, bounded, context, recording, deadline.left()))
        recording.require_alive()
        recording.acknowledge(MARK)


def cut_at_mark(log: Path, killed: Path) -> None:
    """Copy a log up to the record before the mark: no check should hear of it. Source lines of
    places in the program stand at the log's end, and come along.

    Raises RunFailure ``log`` when there is none.
    """
    before = None
    frames = read_frames(log)
    for frame in frames:
        if is_mark(frame) and before is not None:
            copy_log(log, killed, before, (each for each in frames if each.kind == LINE))
            return
        before = frame
    raise RunFailure("log", "the crash log has no mark of the writer's end", "it is not whole")


def is_mark(frame: Frame) -> bool:
    return frame.kind == ACKNOWLEDGE and frame.payload == MARK.encode()


def count_promises(log: Path) -> int:
    """How many promises a writer got."""
    return sum(map(is_promise, read_frames(log)))


def is_promise(frame: Frame) -> bool:
    """An acknowledgement that promises something: neither our mark nor a ledger's first line."""
    ours = is_mark(frame) or _begins_ledger(frame.payload)
    return frame.kind == ACKNOWLEDGE and not ours


def _begins_ledger(line: bytes) -> bool:
    words = line.split()
    return len(words) > 3 and words[0] == b"ledger" and words[2] == b"0"


def _recorder_log(room: Path) -> tuple[Artefact, ...]:
    path = room / RECORDER_LOG  # not there where a log was brought
    text = path.read_bytes()[-(1 << 16) :] if path.exists() else b""
    return (Artefact(RECORDER_LOG, "text/plain", text),) if text else ()
