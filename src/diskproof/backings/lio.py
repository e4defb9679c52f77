"""A disk over iSCSI with both ends in the kernel: its own target (LIO) and open-iscsi's initiator.

What comes out is a block device, so that every frontend can use it. The target listens on the
host's loopback, on a port of its own, and lets in who knows a secret (CHAP).
"""

from __future__ import annotations

import os
import secrets
import socket
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.backings.block_tree import run_quietly
from diskproof.backings.filesystem import make_file
from diskproof.backings.initiator import (
    USER,
    find_disk,
    log_in,
    log_out,
    require_initiator,
    start_daemon,
)
from diskproof.backings.loop import start_loop
from diskproof.backings.place import Place, read_device_bytes
from diskproof.backings.room import choose_size
from diskproof.backings.run_dir import start_run_dir
from diskproof.backings.target_flushes import prove_device_flushes
from diskproof.backings.volume_note import Volume, new_name, start_note, write_note
from diskproof.errors import HostError, RunFailure
from diskproof.records import BackingSpec

CONFIG = Path("/sys/kernel/config")
TARGET = CONFIG / "target"
MODULES = ("target_core_file", "target_core_iblock", "iscsi_target_mod", "sd_mod")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Backstore:
    """How the target keeps what is written: the plug-in of the kernel's target that does it, what
    it is told beside file and size, and whether it tells of a write cache."""

    plugin: str
    more: str = ""
    write_cache: bool = False


STORES = {
    "fileio": Backstore("fileio"),
    "fileio-wb": Backstore("fileio", ",fd_buffered_io=1", write_cache=True),
    "blockio": Backstore("iblock"),
    "nullio": Backstore("rd_mcp", ",rd_nullio=1"),
}


class LioBacking:
    """``kind = "lio"``: ``store``, ``size``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        require_lio()
        kind = spec.option("store")
        if base.device and kind != "blockio":
            why = f"the store {kind} keeps its data in a file, and that is a whole device"
            hint = f'set store = "blockio" in [backings.{spec.name}], or make it on a directory'
            raise HostError(f"backing {spec.name} cannot be made on {base.device}", why, hint)
        size = choose_size(spec, base, lambda size: size)
        proof = prove_device_flushes(base, kind, serve)
        with ExitStack() as stack:
            note = stack.enter_context(start_note(base))
            source, below = base.device, base.below
            if source is None and kind != "nullio":
                # One folder for file and note: what stands on the file goes before it.
                here = base.folder == base.home
                room = note if here else stack.enter_context(start_run_dir(base))
                source = make_file(room, size)
                below = (source,)
                if kind == "blockio":
                    source = stack.enter_context(start_loop(source)).path
            if kind == "blockio":
                assert source
                size = read_device_bytes(source)  # it hands out the whole of it
            disk = stack.enter_context(serve(kind, note, source, size))
            where = base.name or base.device or base.folder
            yield Place(
                base.folder,
                device=disk,
                name=f"iSCSI (LIO, {kind}) on {where}; {proof}",
                below=below,
                base_free=base.free_bytes(),
                lowest=base.home,
            )


BACKING = LioBacking()


def require_lio() -> None:
    """Raises HostError where the kernel's target or its initiator are missing."""
    if os.geteuid() != 0:
        raise HostError("there is no iSCSI target of the kernel here", "that needs root", "")
    require_initiator()
    for module in MODULES:
        run_quietly(["modprobe", "--quiet", module])
    if not CONFIG.is_mount():
        run_quietly(["mount", "-t", "configfs", "configfs", str(CONFIG)])
    fabric = TARGET / "iscsi"
    if TARGET.is_dir() and not fabric.is_dir():
        with suppress(OSError):
            fabric.mkdir()
    if not fabric.is_dir():
        hint = "boot a kernel that has it (apt-get install linux-image-amd64)"
        why = "the kernel has no LIO (iscsi_target_mod)"
        raise HostError("there is no iSCSI target of the kernel here", why, hint)


def target_name(name: str) -> str:
    """The iSCSI qualified name of one of ours; such names have no underscores."""
    return f"iqn.2024-01.{name.replace('_', ':')}"


@contextmanager
def serve(kind: str, note: Path, source: Path | None, size: int) -> Iterator[Path]:
    """A disk of ``size`` bytes on a file or device, noted in a folder before it is made; gives
    its node. Raises HostError."""
    name = new_name()
    write_note(note, Volume("lio", name, (source,) if source else ()))
    with start_daemon(note), _removed(note, name):
        try:
            store = make_store(name, STORES[kind], source, size)
            secret = secrets.token_hex(8)
            log_in(target_name(name), make_target(name, store, secret), secret)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            raise HostError("the kernel's iSCSI target cannot be made", why) from None
        yield find_disk(target_name(name), size)


@contextmanager
def _removed(note: Path, name: str) -> Iterator[None]:
    """What a block has made of a target goes with it. A failure to do so hides no other."""
    try:
        yield
    except BaseException:
        remove_target(note, name)
        raise
    if left := remove_target(note, name):
        raise RunFailure("tool", f"the iSCSI target {target_name(name)} could not be removed", left)


def _adapter(name: str, plugin: str) -> Path:
    """A folder of our own for one disk of a plug-in; the kernel wants a number in its name."""
    return TARGET / "core" / f"{plugin}_{zlib.crc32(name.encode()) >> 1}"


def make_store(name: str, store: Backstore, source: Path | None, size: int) -> Path:
    """The disk behind a target. Raises OSError."""
    adapter = _adapter(name, store.plugin)
    adapter.mkdir()
    folder = adapter / name
    folder.mkdir()
    told = {
        "fileio": f"fd_dev_name={source},fd_dev_size={size}",
        "iblock": f"udev_path={source}",
        "rd_mcp": f"rd_pages={size // _PAGE}",
    }
    (folder / "control").write_text(f"{told[store.plugin]}{store.more}")
    (folder / "enable").write_text("1")
    (folder / "wwn" / "vpd_unit_serial").write_text(name)
    if store.plugin == "fileio":  # a device tells of its own write cache
        (folder / "attrib" / "emulate_write_cache").write_text(str(int(store.write_cache)))
    return folder


def make_target(name: str, store: Path, secret: str) -> str:
    """A target with that disk for who knows the secret; gives its portal. Raises OSError."""
    group = TARGET / "iscsi" / target_name(name) / "tpgt_1"
    group.parent.mkdir()
    group.mkdir()
    unit = group / "lun" / "lun_0"
    unit.mkdir()
    (unit / "disk").symlink_to(store)
    wanted = {"authentication": 1, "generate_node_acls": 1, "demo_mode_write_protect": 0}
    for key, value in wanted.items():
        (group / "attrib" / key).write_text(str(value))
    (group / "auth" / "userid").write_text(USER)
    (group / "auth" / "password").write_text(secret)
    portal = group / "np" / f"127.0.0.1:{_free_port()}"
    portal.mkdir()
    (group / "enable").write_text("1")
    return portal.name


def _free_port() -> int:
    """One that nobody listens on now; somebody who takes it first makes the target fail."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def remove_target(note: Path, name: str) -> str:
    """Take a target of ours away with its session, whatever of it is there. Gives why it is still
    there, or nothing."""
    if left := log_out(note, target_name(name)):
        return left
    target = TARGET / "iscsi" / target_name(name)
    group = target / "tpgt_1"
    try:
        if group.is_dir():
            (group / "enable").write_text("0")
            for unit in (group / "lun").glob("lun_*"):
                for link in [path for path in unit.iterdir() if path.is_symlink()]:
                    link.unlink()
                unit.rmdir()
            for portal in (group / "np").iterdir():
                portal.rmdir()
            group.rmdir()
        if target.is_dir():
            target.rmdir()
        for plugin in {store.plugin for store in STORES.values()}:
            for folder in (_adapter(name, plugin) / name, _adapter(name, plugin)):
                if folder.is_dir():
                    folder.rmdir()
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""
