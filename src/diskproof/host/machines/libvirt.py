"""libvirt's machines on this host: asked of its daemon where one runs, else read from its files.

No daemon is started by that: virsh would start one for ``qemu:///session``, and a socket of systemd
one for ``qemu:///system``, so only the socket of a daemon that lives is spoken to. The connection
is read-only (``virsh -r``), which cannot change a machine and shows no secrets.
"""

import os
import pwd
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from diskproof.advice.libvirt_read import read_machines
from diskproof.errors import DiskproofError
from diskproof.host.machines import Finder
from diskproof.process.plain_file import read_plain
from diskproof.process.start import find_tool, run
from diskproof.records.virtual_machines import Machine

DAEMONS = ("virtqemud", "libvirtd")
MOST_MACHINES = 2000
_AT_ONCE = 50
_ANSWER_SECONDS = 2.5  # of all answers of one daemon
_MAX_FILE = 4 << 20
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OF_UUID = re.compile(rf"<uuid>({_UUID.pattern})</uuid>")


@dataclass(frozen=True)
class LibvirtHome:
    """One libvirt: the system's, or a user's session. ``status`` has a file of each machine that
    runs and ``configured`` of each that is defined; ``pid_files`` and ``sockets`` are in the order
    of ``DAEMONS``."""

    title: str
    uri: str
    configured: Path
    status: Path
    pid_files: tuple[Path, ...]
    sockets: tuple[Path, ...]


SYSTEM = LibvirtHome(
    title="libvirt (qemu:///system)",
    uri="qemu:///system",
    configured=Path("/etc/libvirt/qemu"),
    status=Path("/run/libvirt/qemu"),
    pid_files=tuple(Path("/run") / f"{name}.pid" for name in DAEMONS),
    sockets=(Path("/run/libvirt/virtqemud-sock-ro"), Path("/run/libvirt/libvirt-sock-ro")),
)


def find() -> Iterator[Machine | str]:
    """The system's machines, those of our own session and, as root, of everybody's."""
    for place in (SYSTEM, *find_sessions()):
        yield from find_at(place)


def find_sessions() -> Iterator[LibvirtHome]:
    """The places of sessions: ours, and for root those of all users."""
    home = Path(os.environ.get("HOME") or "/nonexistent")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(runtime or f"/run/user/{os.getuid()}")
    seen = {config}
    yield session("qemu:///session", config, own)
    if os.geteuid() != 0:
        return
    for user in pwd.getpwall():
        config = Path(user.pw_dir) / ".config"
        if config not in seen and (config / "libvirt").is_dir():
            seen.add(config)
            yield session(
                f"qemu:///session of {user.pw_name}", config, Path(f"/run/user/{user.pw_uid}")
            )


def session(title: str, config: Path, runtime: Path) -> LibvirtHome:
    """A user's libvirt, by the user's folders for configuration and for what runs."""
    ours = runtime / "libvirt"
    return LibvirtHome(
        title=f"libvirt ({title})",
        uri="qemu:///session",
        configured=config / "libvirt" / "qemu",
        status=ours / "qemu" / "run",
        pid_files=tuple(ours / f"{name}.pid" for name in DAEMONS),
        sockets=(ours / "virtqemud-sock", ours / "libvirt-sock"),
    )


def find_at(place: LibvirtHome) -> Iterator[Machine | str]:
    """The machines of one place. A daemon that does not answer in time is told, and its files are
    read instead."""
    socket = find_live_socket(place)
    if socket is not None and find_tool("virsh"):
        try:
            yield from list(_ask(place, socket))
            return
        except DiskproofError as error:
            yield f"{place.title} did not answer ({error.what}); its files were read instead"
    yield from _read_files(place)


def find_live_socket(place: LibvirtHome) -> Path | None:
    """The socket of the daemon, if that runs: its process is there under its own name."""
    for name, pid_file, socket in zip(DAEMONS, place.pid_files, place.sockets, strict=True):
        with suppress(OSError):
            pid = pid_file.read_text().strip()
            comm = Path(f"/proc/{pid}/comm")
            alive = pid.isdecimal() and comm.read_bytes().strip() == name.encode()
            if alive and socket.is_socket():
                return socket
    return None


# -- from the daemon ------------------------------------------------------------------------


def _ask(place: LibvirtHome, socket: Path) -> Iterator[Machine | str]:
    """Raises DiskproofError when virsh fails or does not end in time."""
    end = time.monotonic() + _ANSWER_SECONDS
    listed = _virsh(place, socket, "list --all --uuid", end)
    uuids = [line for line in map(str.strip, listed.splitlines()) if _UUID.fullmatch(line)]
    if len(uuids) > MOST_MACHINES:
        yield f"{place.title}: only the first {MOST_MACHINES} of {len(uuids)} machines are read"
    for at in range(0, min(len(uuids), MOST_MACHINES), _AT_ONCE):
        some = uuids[at : at + _AT_ONCE]
        commands = [f"dumpxml {each}; dumpxml --inactive {each}" for each in some]
        text = _virsh(place, socket, "; ".join(commands), end)
        yield from _read_dumps(text, place)


def _virsh(place: LibvirtHome, socket: Path, commands: str, end: float) -> str:
    """What virsh prints. One of several commands may fail: a machine may be gone by now."""
    argv = ["virsh", "-q", "-r", "-c", f"{place.uri}?socket={quote(str(socket))}", commands]
    env = {**os.environ, "LIBVIRT_AUTOSTART": "0", "LC_ALL": "C"}
    done = run(argv, timeout=max(0.1, end - time.monotonic()), check=False, env=env)
    if done.returncode != 0 and not done.stdout.strip():
        what = (done.error_text.splitlines() or ["virsh failed"])[-1]
        raise DiskproofError(what.removeprefix("error: "))
    return done.text


def _read_dumps(text: str, place: LibvirtHome) -> Iterator[Machine | str]:
    """Machine by machine, so that one that cannot be read hides no other."""
    texts: dict[str, list[str]] = {}
    for document in re.findall(r"<domain .*?\n</domain>", text, re.DOTALL):
        if found := _OF_UUID.search(document):
            texts.setdefault(found[1], []).append(document)
    for documents in texts.values():
        yield from _read("\n".join(documents), place, place.uri)


# -- from the files -------------------------------------------------------------------------


def _read_files(place: LibvirtHome) -> Iterator[Machine | str]:
    """What is defined together with what runs. The file of a machine whose QEMU is gone is left
    out: no daemon has taken it away."""
    texts: dict[str, list[tuple[Path, str]]] = {}
    for folder in (place.status, place.configured):
        try:
            files = sorted(path for path in folder.iterdir() if path.suffix == ".xml")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            yield f"{folder} cannot be read ({error.strerror}): as root it can"
            continue
        for path in files[:MOST_MACHINES]:
            text = _read_bounded(path)
            if text is None:
                yield f"{path} cannot be read, or is larger than {_MAX_FILE >> 20} MiB"
            elif folder is place.configured or _is_alive(text):
                texts.setdefault(path.stem, []).append((path, text))
    for found in texts.values():
        source = ", ".join(str(path) for path, _ in found)
        yield from _read("\n".join(text for _, text in found), place, source)


def _read_bounded(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        content = read_plain(path, _MAX_FILE + 1)
        return content.decode() if len(content) <= _MAX_FILE else None
    return None


def _is_alive(status: str) -> bool:
    """Whether the process of a status file runs, with the machine's uuid in its command line."""
    pid = re.search(r"<domstatus [^>]{0,200}\bpid='(\d{1,8})'", status)
    uuid = _OF_UUID.search(status)
    return bool(pid and uuid) and _runs(int(pid[1]), uuid[1])  # type: ignore[index]


def _runs(pid: int, uuid: str) -> bool:
    with suppress(OSError):
        return uuid.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


# -- both -----------------------------------------------------------------------------------


def _read(text: str, place: LibvirtHome, source: str) -> Iterable[Machine | str]:
    try:
        machines = read_machines(text, source)
    except DiskproofError as error:
        return [f"{error.what}: {error.why}" if error.why else error.what]
    return [_with_pid(machine, place) for machine in machines]


def _with_pid(machine: Machine, place: LibvirtHome) -> Machine:
    """The machine with its QEMU's process, where libvirt's own note of it holds."""
    if machine.pid is not None or "/" in machine.name:
        return machine
    pid = None
    with suppress(OSError, ValueError):
        pid = int((place.status / f"{machine.name}.pid").read_text().strip())
    return replace(machine, pid=pid) if pid and _runs(pid, machine.id) else machine


FINDER = Finder("libvirt", find)
