"""Our command line, or code of a test, in processes that fork from one which has the modules: to
import them would take most of a call's time, and a test of all verbs makes hundreds of calls.

All else is as a shell starts it: words, folder, environment, descriptors, session, signals, how
the interpreter ends. Where the start itself matters, start an interpreter instead.
"""

import contextlib
import ctypes
import functools
import gc
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_LARGEST = 1 << 17
_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def adopted_orphans() -> Iterator[None]:
    """Processes whose parent ends meanwhile become children of this one."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


class Forked(subprocess.Popen[bytes]):
    """``Popen`` of ``[sys.executable, "-m", "diskproof", ...]`` or ``[sys.executable, "-c", CODE,
    ...]`` without the start of an interpreter.

    Its process is a child of ours, as any other is: its parent ends at once, and we adopt it.
    """

    def _execute_child(self, *given: Any) -> None:
        called = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        ends = [called[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        inherited = [number if end == -1 else end for number, end in enumerate(ends)]
        program, *words = called["args"]
        assert program == sys.executable and called["start_new_session"]
        folder, environment = called["cwd"] or Path.cwd(), called["env"] or os.environ
        with _ONE_AT_A_TIME:  # tests have threads
            self.pid = start_forker().fork(words, str(folder), environment, inherited)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(called[name] for name in pipes))  # type: ignore[attr-defined]


class _Forker:
    """The process that they fork from; it ends when its socket is closed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-m", "support.forked", str(theirs.fileno())]
            # A process with threads is not to be forked.
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(argv, env=environment, pass_fds=[theirs.fileno()])
        assert self._socket.recv(1) == b"."

    def fork(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str], ends: Sequence[int]
    ) -> int:
        """The process that has begun with them."""
        message = json.dumps([words, folder, dict(environment)]).encode()
        with adopted_orphans(), Path("/proc/thread-self/ns/mnt").open("rb") as mounts:
            socket.send_fds(self._socket, [message], [*ends, mounts.fileno()])
            pid = int(self._socket.recv(20))
            assert self._socket.recv(1) == b"."
        return pid

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)


@functools.cache
def start_forker() -> _Forker:
    """Ours; the first call has it started."""
    return _Forker()


def forker_pid() -> int | None:
    """None: no call has started it."""
    return start_forker().pid if start_forker.cache_info().currsize else None


def stop_forker() -> None:
    """It is a child of ours, where others look for children that were left."""
    if start_forker.cache_info().currsize:
        start_forker().close()
        start_forker.cache_clear()
        _bury_adopted()


def _bury_adopted() -> None:
    """What a test killed may have ended while we adopted orphans: nobody else waits for it."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


# -- the process that forks -------------------------------------------------------------------


def _load_all() -> None:
    """What the verbs import."""
    import jinja2
    import pydantic.fields
    import pytest
    import rich.live
    import scipy.stats
    import typer._adapters

    import diskproof.cli.terminal
    import diskproof.report.compare.find
    import diskproof.report.factors.table
    import diskproof.report.page
    import diskproof.report.stability.table
    import diskproof.report.study_tables
    import diskproof.store.export
    import diskproof.store.formats
    from diskproof.cli import app
    from support import simulate

    assert all((jinja2, pydantic, pytest, rich, scipy, typer, diskproof, app, simulate))
    gc.freeze()


def _serve(number: int) -> int:
    """Fork for each message; returns in the last process of all, with what its call ends with."""
    control = socket.socket(fileno=number)
    control.send(b".")
    while True:
        message, ends, _, _ = socket.recv_fds(control, _LARGEST, 4)
        if not message:
            return 0
        with _closed(ends):
            child = os.fork()
            if child == 0 and (pid := os.fork()):
                control.send(str(pid).encode())
                os._exit(0)
            if child == 0:
                os.setsid()
                *standards, mounts = ends
                _enter(mounts)
                for standard, end in enumerate(standards):
                    os.dup2(end, standard)
        if child == 0:
            control.close()
            return _call(*json.loads(message))
        os.waitpid(child, 0)
        control.send(b".")


def _enter(mounts: int) -> None:
    """A test may have got mounts of its own since the process that forks was started."""
    if os.fstat(mounts).st_ino == Path("/proc/self/ns/mnt").stat().st_ino:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(mounts, _CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def _closed(ends: Sequence[int]) -> Iterator[None]:
    yield
    for end in ends:
        os.close(end)


def _call(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = sys.__stdin__ = _open(sys.stdin, 0, "r")
    sys.stdout = sys.__stdout__ = _open(sys.stdout, 1, "w")
    sys.stderr = sys.__stderr__ = _open(sys.stderr, 2, "w")
    kind, what, *rest = words
    sys.argv = [what if kind == "-m" else kind, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__")
    exec(what, {"__name__": "__main__"})
    return 0


def _open(as_was: Any, number: int, mode: str) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it, whatever the descriptor is now."""
    raw = io.FileIO(number, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    by_lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(
        buffered, encoding=as_was.encoding, errors=as_was.errors, line_buffering=by_lines
    )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _load_all()
    sys.exit(_serve(int(sys.argv[1])))
