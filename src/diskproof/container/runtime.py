"""Run a program in a container of its own, by crun, which is gone with it whatever happens.

crun itself runs in mount and process namespaces of its own. They end with their first process, and
that with us: no mount, no container and no process outlives a killed parent. No control group is
made: those of the host are hidden from crun (which also refuses to work where versions 1 and 2 are
mixed), so a container has no limits, like the same load on the host.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from diskproof.container.oci import BUNDLE, SCRATCH, Bundle, make_bundle
from diskproof.errors import RunFailure
from diskproof.process.run_user import require_run_user
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import Completed, require_tool, run

RUNTIME = "crun"
_SEEN_AS = "/tmp"
"""Where crun finds the run's folder: the folders above it may be closed to the container's user."""
_NOTE = ".diskproof-nanoseconds"
_PROBE_SECONDS = 20.0
# Both are constant and get what they work on as arguments. The first starts crun beside a folder,
# the second is the container's first process, and notes how long the program took.
_ENTER = f'mount --rbind -- "$0" {_SEEN_AS} && mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
_TIMED = f's=$(date +%s%N); "$@"; r=$?; e=$(date +%s%N); echo $((e-s)) >{SCRATCH}/$0; exit $r'


def host_id() -> tuple[int, int]:
    """User and group of the host that a container's root is."""
    if os.geteuid() == 0:
        return require_run_user(), require_run_user()
    return os.geteuid(), os.getegid()


def run_container(
    folder: Path, disk: Path, scratch: Path, argv: Sequence[str], *, timeout: float
) -> Completed:
    """Run ``argv`` with ``disk`` as /disk, working in ``scratch``; both are in ``folder``.

    Its ``seconds`` are those of the program alone, and its status is 128 + N when signal N ended
    it. Raises HostError when crun is not installed, RunFailure ``tool`` when it starts no
    container and ``timeout`` when that does not end.
    """
    place = folder / BUNDLE
    disk_path, scratch_path = (f"{_SEEN_AS}/{path.relative_to(folder)}" for path in (disk, scratch))
    # A user who is not root is root of the namespace that crun is in.
    mapped = host_id() if os.geteuid() == 0 else (0, 0)
    timed = ("sh", "-c", _TIMED, _NOTE, *argv)
    make_bundle(place, Bundle(disk_path, scratch_path, mapped, timed))
    done = run(runtime_args(folder), timeout=timeout, check=False)
    try:
        return replace(done, seconds=int((scratch / _NOTE).read_text()) / 1e9)
    except (OSError, ValueError):
        why = done.error_text[-500:] or f"{RUNTIME} ended with status {done.returncode}"
        raise RunFailure("tool", "the container was not started, or ended early", why) from None


def runtime_args(folder: Path) -> list[str]:
    """crun in namespaces of its own."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    place = f"{_SEEN_AS}/{BUNDLE}"
    return [
        require_tool("unshare", "util-linux"),
        *(*own, *kinds, "--"),
        *("/bin/sh", "-c", _ENTER, str(folder)),
        *(require_tool(RUNTIME, RUNTIME), f"--root={place}/state", "--cgroup-manager=disabled"),
        *("run", f"--bundle={place}", "diskproof"),
    ]


def require_containers() -> None:
    """Start a container here. Raises HostError or RunFailure when there cannot be one."""
    require_tool(RUNTIME, RUNTIME)
    with start_scratch_dir() as folder:
        disk = folder / "disk"
        disk.touch()
        with start_scratch(folder) as scratch:
            done = run_container(folder, disk, scratch, ["true"], timeout=_PROBE_SECONDS)
    if done.returncode != 0:
        raise RunFailure("tool", "a container's program failed", done.error_text[-500:])


@contextmanager
def start_scratch(folder: Path, files: Mapping[str, bytes] | None = None) -> Iterator[Path]:
    """A folder with files, all of them the container's; gone with the block."""
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=folder) as name:
        scratch = Path(name)
        for file, content in (files or {}).items():
            (scratch / file).parent.mkdir(parents=True, exist_ok=True)
            (scratch / file).write_bytes(content)
        if os.geteuid() == 0:
            for path in (scratch, *scratch.rglob("*")):
                os.chown(path, *host_id(), follow_symlinks=False)
        yield scratch
