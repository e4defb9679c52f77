"""The one door for processes: bounded, in their own group, dead when we are.

Every child gets its own session (so that a Ctrl-C reaches only us, and the whole group can be
killed) and PR_SET_PDEATHSIG through setpriv(1), so that a killed diskproof leaves nothing
running. PDEATHSIG fires when the *thread* that started the child ends: start long-lived
children from a thread that outlives them.
"""

import functools
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from diskproof.errors import HostError, RunFailure
from diskproof.process.cage import OPEN_CAGE, QEMU_CAGE, Cage, cage_args, confine_args
from diskproof.process.child import GRACE_SECONDS, end, kill_group, started, stop
from diskproof.process.native import require_native
from diskproof.process.run_user import require_run_user

MAX_OUTPUT = 64 << 20
CONFINE = "diskproof-confine"
LONGEST_SYNC = 3600.0
_PROBE_SECONDS = 20.0
_joined: ContextVar[Path | None] = ContextVar("joined", default=None)


@dataclass(frozen=True)
class Completed:
    """A process that ended. Output is cut at ``MAX_OUTPUT`` bytes each."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace").strip()


def find_tool(name: str) -> str | None:
    """Path of a program, also where an ordinary user's PATH lacks the sbin folders."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    return shutil.which(name, path=path)


def require_tool(name: str, package: str = "") -> str:
    """Path of a program, or HostError with the package that brings it."""
    found = find_tool(name)
    if found is None:
        what, hint = f"{name} is not installed", ""
        if package:
            what, hint = f"{what} (Debian: {package})", f"apt-get install {package}"
        raise HostError(what, "it was not found on PATH", hint)
    return found


@contextmanager
def joining(members: Path) -> Iterator[None]:
    """What this thread starts in the block is in a control group before it runs; ``members`` is
    the group's file of processes (cgroups(7))."""
    before = _joined.set(members)
    try:
        yield
    finally:
        _joined.reset(before)


def _join_args() -> list[str]:
    members = _joined.get()
    if members is None:
        return []
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(members)]


def lifeline_args(
    *,
    confined: bool = False,
    groups: Sequence[int] = (),
    cage: Cage | None = None,
    network: Path | None = None,
) -> list[str]:
    """The argv prefix that ties a child's life to ours and, if asked, takes its privileges.

    A confined child of root becomes the user of ``run_user`` without capabilities, in an empty
    network namespace of its own or in ``network``. Without root it stays who we are, and cannot
    gain privileges. What it makes is its user's alone; it has the bounds and the system calls of
    its cage, ``OPEN_CAGE`` unless one is given, and opens only what is in it
    (``find_cage_obstacle`` says where that cannot be had). The prefix works for children of this
    process only.
    """
    if not confined:
        prefix = [require_tool("setpriv", "util-linux"), "--pdeathsig", "KILL"]
        return [*_join_args(), *prefix, "--", *_orphan_check_args()]
    walls = _wall_args(cage, network=network, groups=groups, parent=os.getpid())
    return [*_join_args(), *walls]


def grandchild_args(cage: Cage) -> list[str]:
    """As ``lifeline_args(confined=True)``, for a child of ours that starts the program: it adds
    ``--parent PID --`` with its own number."""
    return _wall_args(cage, network=None, groups=(), parent=None)


def _wall_args(
    cage: Cage | None, *, network: Path | None, groups: Sequence[int], parent: int | None
) -> list[str]:
    root = os.geteuid() == 0
    walls = confine_args(
        str(require_native(CONFINE)),
        cage or OPEN_CAGE,
        files=cage is not None and not find_cage_obstacle(),
        parent=parent,
        user=require_run_user() if root else None,
        groups=groups,
    )
    return [*_namespace_args(network), *walls] if root else walls


def _namespace_args(network: Path | None) -> list[str]:
    unshare = require_tool("unshare", "util-linux")
    if network is None:
        return [unshare, "--net", "--ipc", "--"]
    return [*join_network_args(network), unshare, "--ipc", "--"]


def join_network_args(network: Path | None) -> list[str]:
    """The argv prefix that runs a program in a network namespace, as root may; None: ours."""
    if network is None:
        return []
    return [require_tool("nsenter", "util-linux"), f"--net={network}", "--"]


@functools.cache
def find_cage_obstacle() -> str:
    """Why a child cannot be kept to a few files on this host, or empty; tried once.

    Raises HostError when our native programs are not built.
    """
    confine = str(require_native(CONFINE))
    argv = [*cage_args(confine, QEMU_CAGE), require_tool("true")]
    done = run(argv, timeout=_PROBE_SECONDS, check=False)
    return done.error_text.removeprefix(f"{CONFINE}: ") if done.returncode else ""


def _orphan_check_args() -> list[str]:
    """Start the program only while we live.

    A parent that is killed before setpriv has asked for the signal would leave the child
    running. The script is constant and gets the program as arguments.
    """
    script = '[ "$PPID" = "$0" ] && exec "$@"'
    return ["/bin/sh", "-c", script, str(os.getpid())]


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    pass_fds: Sequence[int] = (),
    confined: bool = False,
    cage: Cage | None = None,
    network: Path | None = None,
) -> Completed:
    """Run a program to its end; ``confined``, ``cage`` and ``network`` as in ``start_process``.

    Raises HostError when it is not installed, RunFailure ``timeout`` after ``timeout`` seconds
    (the group is killed), and with ``check`` RunFailure ``tool`` on a non-zero exit.
    """
    program = require_tool(argv[0])
    caged = cage.starting(program) if cage else None
    lifeline = lifeline_args(confined=confined, cage=caged, network=network)
    outputs, began = (bytearray(), bytearray()), time.monotonic()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*lifeline, program, *argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
        )

    with started(start, end) as child:
        try:
            _pump(child, stdin, began + timeout, outputs)
            returncode = child.wait(max(0.0, began + timeout - time.monotonic()) + GRACE_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise _timed_out(argv, timeout, outputs) from None
    seconds = time.monotonic() - began
    done = Completed(tuple(argv), returncode, bytes(outputs[0]), bytes(outputs[1]), seconds)
    if check and returncode != 0:
        tail = "\n".join(done.error_text.splitlines()[-5:])
        raise RunFailure("tool", f"{argv[0]} failed with status {returncode}", tail)
    return done


def _timed_out(argv: Sequence[str], timeout: float, outputs: Iterable[bytearray]) -> RunFailure:
    what = f"{argv[0]} did not end within {timeout:.0f} s"
    evidence = tuple(zip(("stdout", "stderr"), map(bytes, outputs), strict=True))
    return RunFailure("timeout", what, f"command: {' '.join(argv)}", evidence=evidence)


def write_back(path: Path, timeout: float = LONGEST_SYNC) -> Completed:
    """sync(1) of a file, in a process of its own: a disk that hangs holds that, and not us. Raises
    RunFailure ``timeout``; what else fails is in the answer."""
    quiet = {**os.environ, "LC_ALL": "C"}
    return run(["sync", "--", str(path)], timeout=timeout, env=quiet, check=False)


def run_in_terminal(argv: Sequence[str]) -> int:
    """Run a program where we are: our terminal, our group, our Ctrl-C; gives its exit status.

    What interrupts us while it runs only asks it to end: what it leaves is still to be used.
    Raises HostError when it is not installed.
    """
    program = require_tool(argv[0])
    with subprocess.Popen([*lifeline_args(), program, *argv[1:]]) as child:
        while True:
            try:
                status = child.wait()
                return status if status >= 0 else 128 - status
            except KeyboardInterrupt:
                child.terminate()


def _pump(
    child: subprocess.Popen[bytes],
    stdin: bytes,
    deadline: float,
    into: tuple[bytearray, bytearray],
) -> None:
    """Feed stdin and read both outputs, bounded in size and time. Raises TimeoutError."""
    assert child.stdin and child.stdout and child.stderr
    outputs = dict(zip((child.stdout, child.stderr), into, strict=True))
    pending = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stderr, selectors.EVENT_READ)
        if pending:
            selector.register(child.stdin, selectors.EVENT_WRITE)
        else:
            child.stdin.close()
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(max(0.0, left))
            if left <= 0:
                raise TimeoutError
            for key, _ in ready:
                if key.fileobj is child.stdin:
                    pending = _feed(child.stdin, pending)
                    if not pending:
                        selector.unregister(child.stdin)
                        child.stdin.close()
                elif not _drain(key.fd, outputs[key.fileobj]):  # type: ignore[index]
                    selector.unregister(key.fileobj)


def _feed(pipe: IO[bytes], pending: memoryview) -> memoryview:
    """Write what the pipe takes; a reader that closed early needs no more."""
    try:
        return pending[os.write(pipe.fileno(), pending[:4096]) :]
    except BrokenPipeError:
        return pending[:0]


def _drain(fd: int, into: bytearray) -> bool:
    """Read once; keep at most MAX_OUTPUT bytes. False at the end of the stream."""
    chunk = os.read(fd, 1 << 16)
    into += chunk[: max(0, MAX_OUTPUT - len(into))]
    return bool(chunk)


class Process:
    """A running child with its log; made by ``start_process``."""

    def __init__(self, name: str, child: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self.child = child

    @property
    def pid(self) -> int:
        """The program's own process id (setpriv and unshare exec, they do not fork)."""
        return self.child.pid

    def poll(self) -> int | None:
        return self.child.poll()

    def wait(self, timeout: float) -> int | None:
        """Exit status, or None when it still runs after ``timeout`` seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.child.wait(timeout)
        return None

    def kill(self) -> None:
        kill_group(self.child)

    def read_log(self, limit: int = 1 << 20) -> bytes:
        """The last ``limit`` bytes of what it printed."""
        with suppress(FileNotFoundError), self.log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - limit))
            return stream.read(limit)
        return b""


@contextmanager
def start_process(
    argv: Sequence[str],
    *,
    name: str,
    log: Path,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    confined: bool = False,
    groups: Sequence[int] = (),
    cage: Cage | None = None,
    network: Path | None = None,
    stdout: int | IO[bytes] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """Run a program in the background for the length of a ``with`` block.

    ``confined``, ``groups``, ``cage`` and ``network`` are those of ``lifeline_args``; the program's
    own folder is in its cage. ``log`` takes stderr, and stdout too unless ``stdout`` is given;
    ``variables`` come to its environment. At the end of the block the group gets SIGTERM, then
    SIGKILL after ``GRACE_SECONDS``.
    """
    program = require_tool(argv[0])
    caged = cage.starting(program) if cage else None
    lifeline = lifeline_args(confined=confined, groups=groups, cage=caged, network=network)

    def start() -> subprocess.Popen[bytes]:
        with open(log, "ab", opener=_open_private) as sink:
            return subprocess.Popen(
                [*lifeline, program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=sink if stdout is None else stdout,
                stderr=sink,
                cwd=cwd,
                pass_fds=pass_fds,
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )

    with started(start, stop) as child:
        yield Process(name, child, log)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
