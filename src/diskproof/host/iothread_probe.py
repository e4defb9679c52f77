"""Whether the storage daemon survives that a client leaves an export with an iothread: tried.

QEMU 7.2 with its fix of CVE-2024-7409 does not: it asserts the main thread in
``nbd_blockdev_client_closed``, which then runs in the iothread.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from diskproof.process.cage import QEMU_CAGE
from diskproof.process.start import require_tool, run, start_process

SECONDS = 20.0
_LAST_MOMENTS = 0.2
_SOCKET = "iothread.sock"


def find_daemon_iothread_fault(folder: Path) -> str:
    """Why exports cannot have an iothread here, or empty. ``folder`` is a run's folder.

    Raises HostError when QEMU is not installed.
    """
    with _listen(folder) as listener:
        argv = [
            require_tool("qemu-storage-daemon", "qemu-system-common"),
            *("--blockdev", "driver=null-co,node-name=disk,size=1048576"),
            *("--object", "iothread,id=thread"),
            *("--nbd-server", f"addr.type=fd,addr.str={listener.fileno()}"),
            *("--export", "type=nbd,id=export,node-name=disk,name=disk,iothread=thread"),
        ]
        log, fds = folder / "iothread.log", (listener.fileno(),)
        starting = start_process(
            argv,
            name="daemon",
            log=log,
            cwd=folder,
            confined=True,
            cage=QEMU_CAGE,
            pass_fds=fds,
        )
        with starting as daemon:
            listener.close()  # a client of a daemon that ended must not wait for ours
            first, second = _visit(folder), _visit(folder)  # the second one finds it alive
            if first and second and daemon.wait(_LAST_MOMENTS) is None:
                return ""
            if not first:
                return f"the export fails: {daemon.read_log(300).decode('utf-8', 'replace')}"
    return "this QEMU's storage daemon ends when the client of such an export leaves"


def _listen(folder: Path) -> socket.socket:
    """A listening socket, bound through a descriptor: the folder's path may be too long."""
    listener = socket.socket(socket.AF_UNIX)
    inside = os.open(folder, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{inside}/{_SOCKET}")
        listener.listen()
    finally:
        os.close(inside)
    return listener


def _visit(folder: Path) -> bool:
    """A client that negotiates, asks for the size and leaves."""
    url = f"nbd+unix:///disk?socket={_SOCKET}"
    argv = [require_tool("qemu-img", "qemu-utils"), "info", "--output=json", url]
    return run(argv, timeout=SECONDS, cwd=folder, check=False).returncode == 0
