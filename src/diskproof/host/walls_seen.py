"""Who runs as what: looked up in /proc while programs run that we have started (proc(5))."""

import pwd
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from diskproof.process.cage import WALLED_MARK
from diskproof.process.run_user import is_run_user
from diskproof.process.start import CONFINE
from diskproof.records.walls import RUN_USER, Walls

_PAUSE_SECONDS = 0.005
_SPACES = ("ipc", "mnt", "net", "pid", "user", "uts")
_MODES = {"0": "no", "1": "strict", "2": "filter"}
# What a start passes through; the program is what comes then.
_STAGES = {"setpriv", "unshare", "nsenter", "sh", "env", CONFINE}
# By number (capabilities(7)).
_CAPABILITIES = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
]


@contextmanager
def start_look() -> Iterator[set[Walls]]:
    """Look at all that this process starts while the block lasts; the set is filled at its end."""
    seen: set[Walls] = set()
    last: dict[tuple[int, float], Walls] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(_PAUSE_SECONDS):
            for process in psutil.Process().children(recursive=True):
                with suppress(OSError, KeyError, ValueError, psutil.Error):
                    walls, key = read_walls(process.pid), (process.pid, process.create_time())
                    last.pop(key, None)
                    if walls is not None:
                        last[key] = walls

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield seen
    finally:
        over.set()
        looker.join()
        seen |= set(last.values())


def read_walls(pid: int) -> Walls | None:
    """The walls of a process, or None of one that is on its way to its program, or just a copy of
    who starts it. Raises OSError, KeyError and ValueError when it ends meanwhile."""
    folder = Path(f"/proc/{pid}")
    program = _read_program(folder)  # first: what is read after its name is the program's
    status = _read_table(folder / "status")
    if program in _STAGES:
        return None
    parent = Path(f"/proc/{status['PPid'][0]}")
    if program == _read_program(parent):
        ours = program.startswith("diskproof-")  # others fork to become what they start
        if not ours or _read_program(folder) != program:
            return None
        program += ", its guardian"
    limits = {line[:26].strip(): line[47:67].strip() for line in _lines(folder / "limits")}
    spaces = (name for name in _SPACES if _is_own(folder / "ns" / name))
    files = WALLED_MARK.encode() in (folder / "environ").read_bytes().split(b"\0")
    bounding = () if status["NoNewPrivs"][0] == "1" else _names(status["CapBnd"][0])
    return Walls(
        program,
        _user_name(int(status["Uid"][1])),
        _names(status["CapEff"][0]),
        bounding,
        status["NoNewPrivs"][0] == "1",
        _MODES.get(status["Seccomp"][0], "?"),
        files,
        tuple(spaces),
        _bound(limits["Max data size"]),
        _bound(limits["Max core file size"]),
    )


def _read_program(folder: Path) -> str:
    """As it was called: the kernel's own name for it is cut."""
    first = (folder / "cmdline").read_bytes().split(b"\0")[0]
    if not first:
        raise ValueError(f"{folder} has ended, or is of the kernel")
    return Path(first.decode("utf-8", "replace")).name


def _read_table(path: Path) -> dict[str, list[str]]:
    pairs = (line.partition(":") for line in _lines(path))
    return {name: rest.split() for name, _, rest in pairs}


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def _names(mask: str) -> tuple[str, ...]:
    held = int(mask, 16)
    return tuple(name for bit, name in enumerate(_CAPABILITIES) if held >> bit & 1)


def _is_own(space: Path) -> bool:
    return space.readlink() != Path("/proc/self/ns", space.name).readlink()


def _bound(text: str) -> int | None:
    return None if text == "unlimited" else int(text)


def _user_name(number: int) -> str:
    if is_run_user(number):
        return RUN_USER
    with suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)
