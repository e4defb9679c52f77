"""QEMU's control socket, one command at a time.

qemu.qmp is asynchronous; a run asks a handful of questions in order, so each call drives a
private event loop until its answer is there. One thread at a time may use a connection.
"""

import asyncio
import socket
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from qemu.qmp import ExecuteError, QMPClient, QMPError

from diskproof.errors import RunFailure
from diskproof.process.signals import signals_wait

T = TypeVar("T")


class Qmp:
    """A connected monitor; made by ``connect``."""

    def __init__(self, client: QMPClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = 10.0
    ) -> Any:
        """The command's ``return`` value, as JSON gives it.

        Raises RunFailure ``qemu`` when QEMU answers with an error, is gone or stays silent.
        """
        what = f"QEMU did not carry out {command}"
        return _drive(self._loop, self._client.execute(command, arguments), timeout, what)

    def give_descriptor(self, name: str, fd: int) -> None:
        """Hand an open file to QEMU, which knows it by ``name`` then (``fd:NAME``)."""
        self._client.send_fd_scm(fd)
        self.execute("getfd", {"fdname": name})

    def wait_event(self, names: Sequence[str], timeout: float) -> Mapping[str, Any] | None:
        """The next event with one of those names, None when none comes within ``timeout`` seconds.

        Events that came since the connection was made count, each once; others are let go.
        """
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with suppress(_Silence):
                event = _drive(
                    self._loop, _or_silence(self._client.events.get(), left), left + 5, ""
                )
                if event["event"] in names:
                    return dict(event)
        return None

    def close(self) -> None:
        """Hang up; says nothing when QEMU was first."""
        if self._loop.is_closed():
            return
        with suppress(RunFailure):
            _drive(self._loop, self._client.disconnect(), 5.0, "QMP")
        self._loop.close()


def connect(sock: socket.socket, timeout: float) -> Qmp:
    """Negotiate on a connected stream socket, which then belongs to the Qmp.

    Raises RunFailure ``qemu`` when no greeting comes within ``timeout`` seconds.
    """
    loop = asyncio.new_event_loop()
    client = QMPClient("diskproof")
    client.logger.disabled = True  # what goes wrong is raised
    try:
        _drive(loop, client.connect(sock), timeout, "QEMU's monitor gave no greeting")
    except BaseException:
        sock.close()
        loop.close()
        raise
    return Qmp(client, loop)


@contextmanager
def start_qmp(sock: socket.socket, timeout: float) -> Iterator[Qmp]:
    """``connect`` for the length of a ``with`` block."""
    qmp = connect(sock, timeout)
    try:
        yield qmp
    finally:
        qmp.close()


class _Silence(Exception):
    """No event came; unlike a TimeoutError it is no fault."""


async def _or_silence(step: Coroutine[Any, Any, T], timeout: float) -> T:
    try:
        return await asyncio.wait_for(step, timeout)
    except TimeoutError:
        raise _Silence from None


_ODD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What the client raises for lines that no QEMU says: a guest may have taken it over."""


def _drive(
    loop: asyncio.AbstractEventLoop, step: Coroutine[Any, Any, T], timeout: float, what: str
) -> T:
    if loop.is_closed():
        step.close()
        raise RunFailure("qemu", what, "the connection was given up")
    task = loop.create_task(asyncio.wait_for(step, timeout))
    try:
        with signals_wait(lambda: loop.call_soon_threadsafe(task.cancel)):
            return loop.run_until_complete(task)
    except ExecuteError as error:
        raise RunFailure("qemu", what, f"it answered: {error}") from None
    except TimeoutError:
        raise RunFailure("qemu", what, f"no answer within {timeout:.0f} s") from None
    except (QMPError, EOFError, OSError, *_ODD) as error:
        reason = str(error) or type(error).__name__
        raise RunFailure("qemu", what, f"the connection ended: {reason}") from None
