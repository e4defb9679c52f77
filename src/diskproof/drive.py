"""The seam between who drives a disk (``frontends/``) and what loads it (``workloads/``)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from diskproof.records import Cell, Check
from diskproof.study.guest import OwnGuest

MAX_COLLECTED = 64 << 20  # bytes of one file brought back from where a disk is visible


@dataclass(frozen=True)
class NetworkDisk:
    """A disk behind a network protocol, with its server at work.

    ``driver`` and ``options`` are those of QEMU's block node, which names its server ``address``;
    ``fio`` the options of fio's own client (empty: it has none). Relative names in them start in
    ``folder``, and a client works there. ``namespace`` is the network namespace that the server is
    reached in (None: none is needed). ``file`` is the local file behind it, if there is one.
    ``checks`` are what was found of the server, ``pids`` its processes.
    """

    driver: str
    options: Mapping[str, object]
    address: str
    folder: Path
    fio: Mapping[str, str] = field(default_factory=dict)
    namespace: Path | None = None
    file: Path | None = None
    checks: tuple[Check, ...] = ()
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class DiskImage:
    """The disk under test of one run. ``path`` is absolute; ``size`` is the guest-visible size.
    ``device``: the path is a block device and not a file. ``network``: it is reached through a
    server, and there need not be anything at the path, which lies in the client's folder."""

    path: Path
    format: str
    size: int
    device: bool = False
    network: NetworkDisk | None = None

    @property
    def driver(self) -> str:
        """QEMU's protocol driver for it."""
        if self.network:
            return self.network.driver
        return "host_device" if self.device else "file"

    @property
    def namespace(self) -> Path | None:
        """The network namespace that QEMU needs for it; None: one without any network."""
        return self.network.namespace if self.network else None

    @property
    def server_pids(self) -> tuple[int, ...]:
        """Processes of the study's own that serve it."""
        return self.network.pids if self.network else ()

    @property
    def local(self) -> tuple[Path, ...]:
        """What holds its bytes on this host, if anything does."""
        if self.network is None:
            return (self.path,)
        return (self.network.file,) if self.network.file else ()


@dataclass(frozen=True)
class Execution:
    """A command that ran where the disk is visible. ``files`` are those asked to be collected."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    files: Mapping[str, bytes] = field(default_factory=dict)


class Monitor(Protocol):
    """QEMU's control socket (``qmp.Qmp``)."""

    def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = 10.0
    ) -> Any: ...

    def wait_event(self, names: Sequence[str], timeout: float) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True)
class SteeredMachine:
    """What stands behind a guest's disk, for workloads that watch or steer it from the host."""

    monitor: Monitor
    image: DiskImage
    load_modules: Callable[[Sequence[str]], None]
    """Kernel modules of file systems, by name, in the guest. Raises RunFailure ``guest``."""


@dataclass(frozen=True)
class DriveFacts:
    """What is known of a disk in service. Its frontend fills this once."""

    size: int
    fio: Mapping[str, str]
    """How fio reaches it: job options (``ioengine``, ``filename`` or ``uri``, ...)."""
    pids: Sequence[int] = ()
    """Processes whose cost is the disk's (QEMU, the storage daemon), for the sampler."""
    machine: SteeredMachine | None = None
    """The virtual machine that the disk belongs to, if it belongs to one."""
    second_disk: str = ""
    """The run's second disk, as commands see it; empty where there is none."""
    path: str = ""
    """The disk's absolute name, where fio's is another."""

    @property
    def disk(self) -> str:
        """The disk as commands see it."""
        return self.path or self.fio["filename"].replace(r"\:", ":")


@dataclass(frozen=True)
class Command:
    """A command for where the disk is visible. ``files`` (relative name -> content) are put into
    its scratch folder first; ``collect`` names what to bring back (missing ones are left out).
    ``timeout`` bounds the command, ``left`` all that goes with it; both in seconds."""

    argv: Sequence[str]
    timeout: float
    files: Mapping[str, bytes]
    collect: Sequence[str]
    left: float = math.inf


@dataclass
class Drive(ABC):
    """A disk in service: what a workload sees."""

    facts: DriveFacts

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        collect: Sequence[str] = (),
    ) -> Execution:
        """Run a command where the disk is visible (host or guest), in a scratch folder of its own.

        Raises ValueError for a name outside of that, RunFailure (``timeout``, ``guest``, ``qemu``).
        """
        files = files or {}
        for path in map(PurePosixPath, (*files, *collect)):
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise ValueError(f"{path} is not inside the scratch folder")
        return self.run(Command(argv, timeout, files, collect))

    @abstractmethod
    def run(self, command: Command) -> Execution:
        """``execute``, as each frontend does it."""

    @abstractmethod
    def read_back(self) -> tuple[Check, ...]:
        """The effective configuration against the requested one."""


@dataclass(frozen=True)
class RunContext:
    """What a frontend needs to put one cell's disk into service.

    ``run_dir`` is private to the run and holds logs and sockets. ``accel`` is the accelerator to
    use (the cell's, or the host's probed one for ``auto``). ``deadline_seconds`` bounds start-up.
    ``second_disk`` is what the workload has beside the disk under test, the same for all cells.
    ``guest_extra`` names further packages that a guest is to have, ``own_guest`` is the user's
    own machine, for the frontend that runs it. ``promises`` is a descriptor that a guest's console
    writes to, where its writer promises.
    """

    cell: Cell
    image: DiskImage
    run_dir: Path
    accel: str
    deadline_seconds: float = 120.0
    guest_extra: str = ""
    own_guest: OwnGuest | None = None
    second_disk: DiskImage | None = None
    promises: int | None = None
