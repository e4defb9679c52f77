"""A disk over NBD: qemu-nbd in the run's folder, or a server that the study names.

Direct I/O asked of the client does not reach a server: ``cache`` here is the server's own.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from diskproof.backings import server
from diskproof.backings.device import find_signatures
from diskproof.backings.flush_proof import FlushProof, prove_flushes
from diskproof.backings.place import Place, Service, start_run_dir
from diskproof.drive import NetworkDisk
from diskproof.errors import HostError, RunFailure
from diskproof.process.open_files import find_rings
from diskproof.process.start import require_tool, run, start_process
from diskproof.qemu.disk import image_opts
from diskproof.qemu.images import client_cage, read_network_size
from diskproof.records import BackingSpec, Check
from diskproof.study.factors import DIRECT

DRIVER = "nbd"
EXPORT = "disk"
SOCKET = "server.sock"
LOG = "qemu-nbd.log"
PORT = 10809  # IANA's for nbd
ANSWER_SECONDS = 5.0
_GREETING = b"NBDMAGIC"
_CLIENTS = 16
_OPEN = "QEMU runs as an unprivileged user, who must be let to the socket"
_LOOK = "look at the server, or set another uri in the study"
_HEAD_BYTES = 2 << 20


class NbdBacking:
    """``kind = "nbd"``: ``server``, with ``cache``, ``aio`` and ``discard`` of qemu-nbd; or
    ``uri``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        yield _named(spec, base) if spec.option("uri") else _own(spec, base)


BACKING = NbdBacking()


# -- a server of our own ----------------------------------------------------------------------


def _own(spec: BackingSpec, base: Place) -> Place:
    require_tool("qemu-nbd", "qemu-utils")
    proof = prove_flushes(base, lambda folder, store: serve(spec, folder, store))

    @contextmanager
    def start(folder: Path, size: int) -> Iterator[NetworkDisk]:
        store = server.make_store(folder, size)
        with serve(spec, folder, store) as disk:
            yield replace(disk, checks=(*disk.checks, *proof.as_checks()))

    how = f"cache={spec.option('cache')}, aio={spec.option('aio')}"
    name = f"NBD (qemu-nbd, {how}) on {base.name or base.device or base.folder}; {proof}"
    return replace(base, name=name, service=Service(DRIVER, True, start, str(proof)))


@contextmanager
def serve(spec: BackingSpec, folder: Path, store: Path) -> Iterator[NetworkDisk]:
    """qemu-nbd on a Unix socket. Raises RunFailure ``tool`` when it does not serve."""
    room = server.make_room(folder)
    inside = server.seen_from(room, store)
    argv = ["qemu-nbd", *server_args(spec, inside)]
    starting = start_process(
        argv,
        name="qemu-nbd",
        log=folder / LOG,
        cwd=room,
        confined=True,
        cage=server.server_cage(inside),
    )
    with starting as process:
        server.await_answer(process, lambda: find_silence(room / SOCKET))
        direct, aio = spec.option("cache") in DIRECT, spec.option("aio")
        disk = NetworkDisk(
            DRIVER,
            {"server": {"type": "unix", "path": SOCKET}, "export": EXPORT},
            SOCKET,
            room,
            # fio works in a scratch folder beside the room.
            {"ioengine": "nbd", "uri": f"nbd+unix:///{EXPORT}?socket=../{room.name}/{SOCKET}"},
            file=store,
            checks=(
                server.check_server_direct(process.pid, store, direct),
                _check_rings(process.pid, aio),
            ),
            pids=(process.pid,),
        )
        with server.blamed(process):
            yield disk


def server_args(spec: BackingSpec, store: str) -> list[str]:
    """Each setting spelt out. The socket's name is absolute, which qemu-nbd asks for, and short."""
    return [
        *("--socket", f"/proc/self/cwd/{SOCKET}"),
        *("--persistent", "--shared", str(_CLIENTS), "--export-name", EXPORT),
        *("--format", "raw", "--cache", spec.option("cache"), "--aio", spec.option("aio")),
        *("--discard", spec.option("discard"), "--detect-zeroes", "off", "--", store),
    ]


def _check_rings(pid: int, aio: str) -> Check:
    ring = {"native": "aio", "io_uring": "io_uring"}.get(aio)
    rings = find_rings(pid)
    ok = ring in rings if ring else "aio" not in rings
    found = ", ".join(sorted(rings)) or "no rings"
    return Check("server: aio", aio, found, "/proc/PID/fd and maps of qemu-nbd", ok)


# -- a server that the study names --------------------------------------------------------------


def _named(spec: BackingSpec, base: Place) -> Place:
    """Raises HostError for one that does not answer, speaks something else or holds something."""
    uri = spec.option("uri")
    proof = FlushProof(obstacle=f"the server of {uri} is not the study's")
    try:
        with start_run_dir(Place(base.home)) as folder:
            disk = _connect(uri, folder)
            size = read_network_size(disk)
            _require_empty(uri, disk, folder)
    except RunFailure as failure:
        hint = _OPEN if "Permission denied" in failure.why else _LOOK
        raise HostError(
            f"{uri} cannot be a backing", f"{failure.what}: {failure.why}", hint
        ) from None

    @contextmanager
    def start(folder: Path, size: int) -> Iterator[NetworkDisk]:
        yield replace(_connect(uri, folder), checks=proof.as_checks())

    service = Service(DRIVER, True, start, str(proof))
    free = min(size, base.base_free) if base.base_free is not None else size
    name = f"NBD ({uri})"
    return Place(base.folder, name=name, base_free=free, lowest=base.home, service=service)


def _connect(uri: str, folder: Path) -> NetworkDisk:
    """The disk at a URI, whose server has said what NBD servers say first."""
    room = server.make_room(folder)
    options, address = parse_uri(uri)
    if silence := find_silence(address):
        raise RunFailure("tool", "no NBD server answers there", silence)
    # A server elsewhere is reached in our own network, and only then.
    network = None if isinstance(address, Path) else Path(f"/proc/{os.getpid()}/ns/net")
    name = str(address) if isinstance(address, Path) else address[0]
    return NetworkDisk(DRIVER, options, name, room, {"ioengine": "nbd", "uri": uri}, network)


def parse_uri(uri: str) -> tuple[Mapping[str, object], Path | tuple[str, int]]:
    """``nbd://HOST[:PORT]/EXPORT`` or ``nbd+unix:///EXPORT?socket=PATH`` as QEMU's options, and
    the address (https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md).

    Raises RunFailure ``tool``.
    """
    try:
        parts = urlsplit(uri)
        export = unquote(parts.path.removeprefix("/"))
        if parts.scheme == "nbd+unix":
            (path,) = parse_qs(parts.query, strict_parsing=True)["socket"]
            reached: dict[str, object] = {"type": "unix", "path": path}
            return {"server": reached, "export": export}, Path(path)
        if parts.scheme == "nbd" and parts.hostname and not parts.query:
            host, port = parts.hostname, parts.port or PORT
            reached = {"type": "inet", "host": host, "port": str(port)}
            return {"server": reached, "export": export}, (host, port)
    except (ValueError, KeyError):
        pass
    why = "it must read nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH"
    raise RunFailure("tool", f"{uri} names no NBD server", why)


def find_silence(address: Path | tuple[str, int]) -> str:
    """Why there is no NBD server at an address, or nothing: it must greet within a few seconds."""
    try:
        with _open_socket(address) as stream:
            greeting = b""
            while len(greeting) < len(_GREETING):
                if not (part := stream.recv(len(_GREETING) - len(greeting))):
                    break
                greeting += part
    except TimeoutError:
        return f"nothing was said for {ANSWER_SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    if greeting == _GREETING:
        return ""
    return f"it says {greeting!r}, which is not NBD" if greeting else "it closes the connection"


def _open_socket(address: Path | tuple[str, int]) -> socket.socket:
    """A path may be longer than a socket's address (108 bytes): its folder is a descriptor."""
    if not isinstance(address, Path):
        return socket.create_connection(address, ANSWER_SECONDS)
    stream = socket.socket(socket.AF_UNIX)
    folder = -1
    try:
        folder = os.open(address.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stream.settimeout(ANSWER_SECONDS)
        stream.connect(f"/proc/self/fd/{folder}/{address.name}")
    except BaseException:
        stream.close()
        raise
    finally:
        with suppress(OSError):
            os.close(folder)
    return stream


def _require_empty(uri: str, disk: NetworkDisk, folder: Path) -> None:
    """Raises HostError when the head of the disk holds anything that wipefs(8) knows."""
    head = disk.folder / "head"
    argv = [
        *(require_tool("qemu-img", "qemu-utils"), "dd", "--image-opts", "-O", "raw", "bs=1M"),
        *(f"count={_HEAD_BYTES >> 20}", f"if={image_opts(disk)}", f"of={head.name}"),
    ]
    space = disk.namespace
    cage = client_cage(space)
    run(argv, timeout=30, cwd=disk.folder, confined=True, cage=cage, network=space)
    if found := find_signatures(head):
        raise HostError(
            f"{uri} is not empty",
            f"it holds {found}, which a run would destroy",
            f"when that can go: qemu-io -f raw -c 'write -z 0 {_HEAD_BYTES >> 20}M' {uri}",
        )
