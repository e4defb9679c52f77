"""Machines of Incus and LXD on this host, as their own clients list them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.advice.documents import load_json
from diskproof.advice.incus_instance import Pool, read_instances, read_pools
from diskproof.errors import DiskproofError
from diskproof.host.machines import Finder
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import find_tool, run
from diskproof.records.virtual_machines import Machine

TIMEOUT_SECONDS = 2.4
"""Of each of the two questions."""


@dataclass(frozen=True)
class Daemon:
    """A client and its daemon. A connection to the ``socket`` would start a daemon that systemd
    has not started yet, so ``process`` has to run. ``config`` and ``address`` are the variables
    that tell the client where its own folder and its socket are."""

    client: str
    process: str
    sockets: tuple[str, ...]
    config: str
    address: str
    pools: str


DAEMONS = (
    Daemon(
        "incus",
        "incusd",
        ("var/lib/incus/unix.socket", "run/incus/unix.socket"),
        "INCUS_CONF",
        "INCUS_SOCKET",
        "/var/lib/incus/storage-pools",
    ),
    Daemon(
        "lxc",
        "lxd",
        ("var/snap/lxd/common/lxd/unix.socket", "var/lib/lxd/unix.socket"),
        "LXD_CONF",
        "LXD_SOCKET",
        "/var/snap/lxd/common/lxd/storage-pools",
    ),
)


def find(root: Path = Path("/")) -> Iterator[Machine | str]:
    """The virtual machines of the daemons that run here; ``root`` is where sockets and /proc are.
    Nothing is started, and two questions have less than 5 s."""
    for daemon in DAEMONS:
        sockets = (root / path for path in daemon.sockets)
        try:
            address = next((path for path in sockets if path.is_socket()), None)
        except OSError:
            address = None
        if address is None or find_tool(daemon.client) is None:
            continue
        if not _runs(root, daemon.process):
            yield f"{daemon.process} is not running, so no machine of it is; it was not started"
        elif not os.access(address, os.R_OK | os.W_OK):
            yield f"{address} is not ours to ask: run as root or as a member of its group"
        else:
            yield from _ask(daemon, address)


def _runs(root: Path, name: str) -> bool:
    for process in (root / "proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "comm").read_text(errors="replace").strip() == name:
                return True
    return False


def _ask(daemon: Daemon, address: Path) -> Iterator[Machine | str]:
    try:
        with start_scratch_dir() as folder:
            env = {**os.environ, daemon.config: str(folder), daemon.address: str(address)}
            listed = [_list(daemon, words, env) for words in (("storage", "list"), ("list",))]
        pools = _with_filesystems(read_pools(_tables(listed[0])), daemon.pools)
        yield from read_instances([listed[1]], f"{daemon.client} list", pools, daemon.client)
    except DiskproofError as error:
        if error.what.endswith("no instance of Incus"):
            return
        yield f"{daemon.client} did not tell its machines: {error.what}"


def _list(daemon: Daemon, words: tuple[str, ...], env: dict[str, str]) -> object:
    """What a list command prints. Raises DiskproofError."""
    every = ["--all-projects"] if words == ("list",) else []
    argv = [daemon.client, *words, *every, "--format", "json"]
    return load_json(run(argv, timeout=TIMEOUT_SECONDS, env=env).text, " ".join(argv))


def _tables(document: object) -> list[dict[str, object]]:
    items = document if isinstance(document, list) else []
    return [item for item in items if isinstance(item, dict)]


def _with_filesystems(pools: dict[str, Pool], folder: str) -> dict[str, Pool]:
    """Of pools that keep their disks in a folder: what kind of file system that lies on."""
    mounts = _read_mounts()
    found = {}
    for name, pool in pools.items():
        place = pool.source if pool.source.startswith("/") else f"{folder}/{name}"
        kind = max(
            (mount for mount in mounts if f"{place}/".startswith(f"{mount[0].rstrip('/')}/")),
            key=lambda mount: len(mount[0]),
            default=("", ""),
        )[1]
        found[name] = Pool(pool.driver, pool.source, kind if pool.driver == "dir" else "")
    return found


def _read_mounts() -> list[tuple[str, str]]:
    """Mount points with their types (proc_pid_mountinfo(5): field 5, the one after the dash)."""
    mounts = []
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            head, _, tail = line.partition(" - ")
            mounts.append((head.split()[4], tail.split()[0]))
    return mounts


FINDER = Finder("incus", find)
