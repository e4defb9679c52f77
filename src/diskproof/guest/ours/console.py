"""A guest's console, kept within bounds: a guest that floods it must not fill anything."""

import re
import socket
import threading

HEAD = 64 << 10
TAIL = 192 << 10


class Console:
    """Drains a socket in a thread; keeps the first ``HEAD`` and the last ``TAIL`` bytes.

    The thread ends when the other end is closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        self._socket = connected
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._heard = threading.Condition()
        self._thread = threading.Thread(target=self._drain, name="console", daemon=True)
        self._thread.start()

    def read(self) -> bytes:
        """What was printed so far, with a line in the middle where some is left out."""
        with self._heard:
            gap = b"\n[%d bytes left out]\n" % self._dropped if self._dropped else b""
            return bytes(self._head + gap + self._tail)

    def find(self, pattern: re.Pattern[bytes], timeout: float) -> list[bytes]:
        """What matches in what was printed, as soon as something does; none when nothing has for
        so many seconds."""
        with self._heard:
            self._heard.wait_for(lambda: pattern.search(self.read()), timeout)
            return [found[0] for found in pattern.finditer(self.read())]

    def wait_end(self, timeout: float) -> None:
        """Wait until everything printed has arrived; meant for after QEMU's end."""
        self._thread.join(timeout)

    def _drain(self) -> None:
        while chunk := self._receive():
            with self._heard:
                room = HEAD - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:]
                excess = len(self._tail) - TAIL
                if excess > 0:
                    del self._tail[:excess]
                    self._dropped += excess
                self._heard.notify_all()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""
