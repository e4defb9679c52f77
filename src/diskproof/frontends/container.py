"""The host's load in an OCI container: what the walls of a container cost, without a guest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.container.oci import BUNDLE, CONFIG, DISK, NAMESPACES
from diskproof.container.runtime import host_id, run_container, start_scratch
from diskproof.drive import Drive, Execution, FioTarget, Machine, RunContext
from diskproof.errors import RunFailure
from diskproof.frontends.commands import read_inside, scratch_names
from diskproof.frontends.effective import make_check
from diskproof.frontends.host import check_direct, check_size, find_direct_obstacle
from diskproof.process.start import require_tool
from diskproof.records import Artefact, Check

_SHORT = 60.0
_SOURCE = "/proc/self of a program in the container"
_FIELDS = ("Seccomp", "NoNewPrivs", "CapEff", "CapPrm", "CapBnd")
_TELL = (
    f"for n in {' '.join(NAMESPACES)}; do readlink /proc/self/ns/$n; done; "
    "cd /proc/self; cat uid_map gid_map status mountinfo"
)


@dataclass
class ContainerDrive:
    """A file or device of the run, in a new container for each command."""

    context: RunContext
    direct_obstacle: str
    size: int
    pids: Sequence[int] = ()
    machine: Machine | None = None
    source: str = ""

    def fio_target(self) -> FioTarget:
        direct = "0" if self.direct_obstacle else "1"
        return FioTarget({"ioengine": "libaio", "filename": DISK, "direct": direct})

    def execute(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        collect: Sequence[str] = (),
    ) -> Execution:
        scratch_names([*(files or {}), *collect])
        require_tool(argv[0])  # the host's programs are the container's
        folder, disk = self.context.run_dir, self.context.image.path
        with start_scratch(folder, files) as scratch:
            done = run_container(folder, disk, scratch, argv, timeout=timeout)
            found = {name: read_inside(scratch, name) for name in collect}
        status = done.returncode
        status = 128 - status if status > 128 else status
        brought = {name: content for name, content in found.items() if content is not None}
        return Execution(status, done.stdout, done.stderr, done.seconds, brought)

    def read_back(self) -> tuple[Check, ...]:
        image = self.context.image
        told = self.execute(["sh", "-c", _TELL], timeout=_SHORT)
        return (
            check_direct(self.direct_obstacle),
            check_size(image.path, self.size),
            *check_walls(told.stdout.decode("utf-8", "replace")),
        )


def check_walls(text: str) -> tuple[Check, ...]:
    """What ``_TELL`` says of a container, against what its configuration asks for."""
    lines = text.splitlines()
    spaces, maps = lines[: len(NAMESPACES)], lines[len(NAMESPACES) : len(NAMESPACES) + 2]
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    status = {name: fields.get(name, "?").strip() for name in _FIELDS}
    mapped = " ".join(map(str, (0, _mapped_to(), 1)))
    capabilities = {status[name].lstrip("0") or "none" for name in _FIELDS[2:]}
    return (
        make_check("namespaces of its own", " ".join(NAMESPACES), _own_namespaces(spaces), _SOURCE),
        make_check("user map", mapped, " and ".join(sorted(map(_squeeze, set(maps)))), _SOURCE),
        make_check("seccomp", "filter", _seccomp(status["Seccomp"]), _SOURCE),
        make_check("no new privileges", "1", status["NoNewPrivs"], _SOURCE),
        make_check("capabilities", "none", " ".join(sorted(capabilities)), _SOURCE),
        make_check("root", "ro", _root_mode(lines), _SOURCE),
    )


def _mapped_to() -> int:
    """The id that root is, as the namespace above sees it."""
    return host_id()[0] if os.geteuid() == 0 else 0


def _own_namespaces(said: Sequence[str]) -> str:
    """Those that are named, and not ours."""
    ours = {str(Path("/proc/self/ns", name).readlink()) for name in NAMESPACES}
    named = dict(line.split(":", 1) for line in said if ":" in line)
    return " ".join(
        name for name in NAMESPACES if name in named and f"{name}:{named[name]}" not in ours
    )


def _squeeze(line: str) -> str:
    return " ".join(line.split())


def _seccomp(mode: str) -> str:
    return {"0": "off", "1": "strict", "2": "filter"}.get(mode, mode)


def _root_mode(lines: Sequence[str]) -> str:
    """``ro`` or ``rw``, of the mount of / (proc_pid_mountinfo(5): its fifth and sixth field)."""
    mounted = [line.split() for line in lines if " - " in line]
    options = [fields[5] for fields in mounted if fields[4] == "/"]
    return options[-1].split(",")[0] if options else "not told"


class ContainerFrontend:
    """The frontend ``container``."""

    name = "container"

    @contextmanager
    def start(self, context: RunContext) -> Iterator[Drive]:
        image = context.image
        if image.format != "raw":
            raise RunFailure(
                "mismatch",
                f"the container frontend cannot read {image.format}",
                "fio knows only raw",
            )
        yield ContainerDrive(context, find_direct_obstacle(image.path), image.size)

    def artefacts(self, context: RunContext) -> tuple[Artefact, ...]:
        """The configuration of the last container."""
        config = context.run_dir / BUNDLE / CONFIG
        if not config.is_file():
            return ()
        return (Artefact("container.config.json", "application/json", config.read_bytes()),)


FRONTEND = ContainerFrontend()
