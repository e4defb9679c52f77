"""What servers of network disks have in common: a folder, the file behind them, a first answer."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diskproof.backings.place import find_device
from diskproof.errors import RunFailure
from diskproof.process.cage import QEMU_CAGE, Cage
from diskproof.process.open_files import find_open_flags
from diskproof.process.owner import hand_over
from diskproof.process.start import Process, run
from diskproof.records import Check
from diskproof.units import render_bytes

ROOM = "server"
STORE = "disk.raw"
START_SECONDS = 20.0
_PAUSE_SECONDS = 0.02
_MAX_LOG = 1 << 16


def make_room(folder: Path) -> Path:
    """A folder in a run's folder where server and clients work: an unprivileged user's own."""
    room = folder / ROOM
    room.mkdir(mode=0o700)
    hand_over(room)
    return room


def make_store(folder: Path, size: int) -> Path:
    """What a server hands out: the device of the run's folder if it has one, emptied where that
    can be, else a sparse file. Raises RunFailure ``space``."""
    if device := find_device(folder):
        with device.open("rb") as stream:
            room = stream.seek(0, os.SEEK_END)
        if room < size:
            why = f"it may take {render_bytes(size)}"
            what = f"the disk under test does not fit on its device of {render_bytes(room)}"
            raise RunFailure("space", what, why, "set a smaller size, or a larger device")
        run(["blkdiscard", "--force", str(device)], timeout=60, check=False)
        return device
    file = folder / STORE
    with file.open("xb") as stream:
        os.truncate(stream.fileno(), size)
    hand_over(file)
    return file


def seen_from(room: Path, file: Path) -> str:
    """A file as the server names it: an unprivileged user may not search the folders above."""
    return os.path.relpath(file, room)


def server_cage(store: str) -> Cage:
    """A server opens its programs, its folder and the file behind the disk."""
    return Cage(QEMU_CAGE.readable, (*QEMU_CAGE.writable, store))


def await_answer(process: Process, ask: Callable[[], str]) -> None:
    """Ask a server until it answers; ``ask`` gives why it has not, or nothing.

    Raises RunFailure ``tool`` when it ends, or is mute for ``START_SECONDS``.
    """
    deadline = time.monotonic() + START_SECONDS
    while why := ask():
        if process.wait(_PAUSE_SECONDS) is not None:
            raise server_ended(process)
        if time.monotonic() > deadline:
            raise RunFailure("tool", f"{process.name} does not answer", why)


@contextmanager
def blamed(process: Process) -> Iterator[None]:
    """A block that fails because the server has ended fails with that reason."""
    try:
        yield
    except RunFailure as failure:
        if process.poll() is None:
            raise
        raise server_ended(process, failure.evidence) from failure
    if process.poll() is not None:
        raise server_ended(process)


@contextmanager
def start_watch(servers: Sequence[int], clients: Sequence[int]) -> Iterator[None]:
    """End the clients of servers as soon as one of these has ended, for the length of a block.

    QEMU's initiator would try for ever to reach a target that is gone. What then fails in the
    block fails for that reason: see ``blamed``.
    """
    if not servers:
        yield
        return
    with ExitStack() as stack:
        watched = [_open_process(stack, pid) for pid in servers]
        targets = [_open_process(stack, pid) for pid in clients if pid not in servers]
        over, ours = os.pipe()
        stack.callback(os.close, over)
        watcher = threading.Thread(target=_watch, args=(watched, targets, over))
        watcher.start()
        try:
            yield
        finally:
            os.close(ours)
            watcher.join()


def _open_process(stack: ExitStack, pid: int) -> int:
    """A descriptor: a number may be somebody else's by then. Raises RunFailure ``tool``."""
    try:
        handle = os.pidfd_open(pid)
    except OSError as error:
        why = f"process {pid}: {error.strerror}"
        raise RunFailure("tool", "a process of the disk under test is gone", why) from None
    stack.callback(os.close, handle)
    return handle


def _watch(servers: list[int], clients: list[int], over: int) -> None:
    ready = select.select([*servers, over], [], [])[0]
    if over in ready:
        return
    for client in clients:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(client, signal.SIGKILL)


def server_ended(process: Process, evidence: tuple[tuple[str, bytes], ...] = ()) -> RunFailure:
    status = process.poll() or 0
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    log = process.read_log(_MAX_LOG)
    tail = log.decode("utf-8", "replace").strip().splitlines()[-3:]
    what = f"{process.name}, which serves the disk under test, {how}"
    return RunFailure("tool", what, "\n".join(tail), evidence=(*evidence, (process.log.name, log)))


def check_server_direct(pid: int, store: Path, wanted: bool) -> Check:
    """Whether the server goes around the page cache, as the kernel has the file open for it."""
    flags = find_open_flags(pid, store)
    asked, source = "on" if wanted else "off", f"/proc/PID/fdinfo of {store.name}"
    if flags is None:
        return Check("server: O_DIRECT", asked, "not open", source, False)
    found = "on" if flags & os.O_DIRECT else "off"
    return Check("server: O_DIRECT", asked, found, source, found == asked)
