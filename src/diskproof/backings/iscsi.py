"""A disk over iSCSI: a target in userspace (tgt) and QEMU's own initiator.

Target and initiator share a network namespace that holds nothing but their loopback: nobody else
reaches the target, and no port of the host is taken. tgtd runs as an unprivileged user, and its
control socket lies in the run's folder.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from diskproof.backings import server
from diskproof.backings.flush_proof import FlushProof, prove_flushes
from diskproof.backings.place import Place, Service
from diskproof.drive import NetworkDisk
from diskproof.errors import HostError, RunFailure
from diskproof.process.run_user import require_run_user
from diskproof.process.start import (
    Completed,
    Process,
    join_network_args,
    require_tool,
    run,
    start_process,
)
from diskproof.qemu.images import require_block_driver
from diskproof.records import BackingSpec, Check

DRIVER = "iscsi"
TARGET = "iqn.2024-01.diskproof:disk"
INITIATOR = "iqn.2024-01.diskproof:initiator"
PORTAL = "127.0.0.1:3260"
LOG = "tgtd.log"
REQUEST_SECONDS = 20
"""How long QEMU waits for a target that says nothing."""
_CONTROL = "TGT_IPC_SOCKET=control"
_CONTROL_PORT = "1"  # part of the socket's name, no port of a network
_TOOL_SECONDS = 10.0
# SBC-3, caching mode page 08h: the third byte's bit 2 is WCE, the write cache. As tgt-admin(8)
# writes it.
_NO_WRITE_CACHE = "mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"


@dataclass(frozen=True)
class BackingStore:
    """How tgt keeps what is written. ``direct``: around the page cache. ``write_cache``: the
    target tells of one; without, it syncs after each write. ``keeps``: there is a file."""

    bstype: str
    flags: str = ""
    direct: bool = False
    write_cache: bool = True
    keeps: bool = True


STORES = {
    "fileio": BackingStore("rdwr", write_cache=False),
    "fileio-wb": BackingStore("rdwr"),
    "blockio": BackingStore("rdwr", flags="direct", direct=True),
    "aio": BackingStore("aio", direct=True),
    "nullio": BackingStore("null", keeps=False),
}


class IscsiBacking:
    """``kind = "iscsi"``: ``store``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        require_target()
        store = STORES[spec.option("store")]
        proof = FlushProof(obstacle="nothing is kept that a flush could save")
        if store.keeps:
            proof = prove_flushes(base, lambda folder, file: serve(store, folder, file))

        @contextmanager
        def start(folder: Path, size: int) -> Iterator[NetworkDisk]:
            file = server.make_store(folder, size)
            with serve(store, folder, file) as disk:
                yield replace(disk, checks=(*disk.checks, *proof.as_checks()))

        where = base.name or base.device or base.folder
        name = f"iSCSI (tgt, {spec.option('store')}) on {where}; {proof}"
        yield replace(base, name=name, service=Service(DRIVER, False, start, str(proof)))


BACKING = IscsiBacking()


def require_target() -> None:
    """Raises HostError where target or initiator are missing."""
    if os.geteuid() != 0:
        why = "target and QEMU share a network namespace, which only root may join"
        raise HostError("there is no iSCSI target here", why, "run it as root")
    for tool, package in (("tgtd", "tgt"), ("tgtadm", "tgt"), ("ip", "iproute2")):
        require_tool(tool, package)
    require_block_driver(DRIVER, "qemu-block-extra")


@contextmanager
def serve(store: BackingStore, folder: Path, file: Path) -> Iterator[NetworkDisk]:
    """tgtd with one target of one disk. Raises RunFailure ``tool`` when it does not serve."""
    room = server.make_room(folder)
    inside = server.seen_from(room, file)
    argv = ["env", _CONTROL, require_tool("tgtd", "tgt"), "-f", "-C", _CONTROL_PORT]
    starting = start_process(
        argv,
        name="tgtd",
        log=folder / LOG,
        cwd=room,
        confined=True,
        cage=server.server_cage(inside),
    )
    with starting as process, _ended_at_once(process):
        server.await_answer(process, lambda: _find_refusal(room))
        namespace = Path(f"/proc/{process.pid}/ns/net")
        with server.blamed(process):
            _require_own_network(namespace)
            run([*join_network_args(namespace), "ip", "link", "set", "lo", "up"], timeout=10)
            for arguments in target_args(store, inside):
                _tell(room, arguments)
            yield NetworkDisk(
                DRIVER,
                initiator_options(),
                PORTAL,
                room,
                namespace=namespace,
                file=file if store.keeps else None,
                checks=tuple(_check_target(process, room, store, file)),
                pids=(process.pid,),
            )


@contextmanager
def _ended_at_once(process: Process) -> Iterator[None]:
    """tgtd does not end on SIGTERM while it has a target. It holds no data of its own: what it
    has acknowledged is with the kernel."""
    try:
        yield
    finally:
        process.kill()


def initiator_options() -> dict[str, object]:
    """QEMU's block driver ``iscsi``."""
    return {
        "transport": "tcp",
        "portal": PORTAL,
        "target": TARGET,
        "lun": 1,
        "initiator-name": INITIATOR,
        "timeout": REQUEST_SECONDS,
    }


def target_args(store: BackingStore, file: str) -> list[list[str]]:
    """What tgtadm is told, in order: a target, its disk, the disk's write cache, its clients."""
    disk = ["--mode", "logicalunit", "--tid", "1", "--lun", "1"]
    flags = ["--bsoflags", store.flags] if store.flags else []
    made = ["--bstype", store.bstype, *flags, "--backing-store", file, "--blocksize", "512"]
    cached = [] if store.write_cache else [["--op", "update", *disk, "--params", _NO_WRITE_CACHE]]
    return [
        ["--op", "new", "--mode", "target", "--tid", "1", "--targetname", TARGET],
        ["--op", "new", *disk, *made],
        *cached,
        ["--op", "bind", "--mode", "target", "--tid", "1", "--initiator-address", "127.0.0.1"],
    ]


def _tgtadm(room: Path, arguments: list[str]) -> Completed:
    """tgtd listens to its own user only."""
    uid = str(require_run_user())
    user = [require_tool("setpriv", "util-linux"), "--reuid", uid, "--regid", uid]
    tool = [require_tool("tgtadm", "tgt"), "-C", _CONTROL_PORT, "--lld", "iscsi"]
    argv = [*user, "--clear-groups", "--", "env", _CONTROL, *tool, *arguments]
    return run(argv, timeout=_TOOL_SECONDS, cwd=room, check=False)


def _tell(room: Path, arguments: list[str]) -> str:
    done = _tgtadm(room, arguments)
    if done.returncode != 0:
        raise RunFailure("tool", f"tgtadm {' '.join(arguments[:4])} failed", done.error_text)
    return done.text


def _find_refusal(room: Path) -> str:
    done = _tgtadm(room, ["--op", "show", "--mode", "target"])
    return "" if done.returncode == 0 else done.error_text or "it refuses"


def _require_own_network(namespace: Path) -> None:
    """Raises RunFailure where the target would be in the host's network."""
    if namespace.readlink() == Path("/proc/self/ns/net").readlink():
        raise RunFailure("tool", "the target has no network of its own", str(namespace))


def _check_target(process: Process, room: Path, store: BackingStore, file: Path) -> Iterator[Check]:
    """What the target says of its disk, and how the kernel has the file open for it."""
    told = _tell(room, ["--op", "show", "--mode", "target"])
    disk = told.partition("LUN: 1")[2]
    lines = (line.partition(":") for line in disk.splitlines())
    found = {key.strip(): value.strip() for key, _, value in lines}
    asked = (("Backing store type", store.bstype), ("Backing store flags", store.flags))
    for name, wanted in asked:
        seen = found.get(name, "not told")
        yield Check(f"server: {name.lower()}", wanted, seen, "tgtadm", seen == wanted)
    if store.keeps:
        yield server.check_server_direct(process.pid, file, store.direct)
