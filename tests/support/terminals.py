"""The installed program on a terminal of its own, where Ctrl-C is typed at it."""

import os
import pty
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.verb_places import DEADLINE, Place

PROGRAM = Path(sys.prefix) / "bin" / "diskproof"
CTRL_C = b"\x03"
READY = b" "


@dataclass(frozen=True)
class Ended:
    """What a shell would see of it, and all that stood on the terminal."""

    code: int
    text: str


def start(place: Place, arguments: Sequence[str], *, typed_before: bool = False) -> tuple[int, int]:
    """The process, as soon as its interpreter has begun, and its terminal; or at once, with a
    Ctrl-C that was typed before and waits, as it does in our start script."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    child, screen = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        keep_output()
        if typed_before:
            os.write(1, READY)
            while signal.SIGINT not in signal.sigpending():
                time.sleep(0.001)
        else:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.chdir(place.here)
        os.execvpe(PROGRAM, [str(PROGRAM), *place.filled(arguments)], place.environment())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if typed_before:
        assert os.read(screen, 1) == READY
        os.write(screen, CTRL_C)
        return child, screen
    # Before that it is a shell, then env(1), whose end is not ours.
    while Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:2] != [bytes(PROGRAM)]:
        time.sleep(0.001)
    return child, screen


def keep_output() -> None:
    """Linux drops what stands on a terminal right after it has sent the signal of a Ctrl-C: on a
    busy host an answer, too, that came between the two."""
    attributes = termios.tcgetattr(0)
    attributes[3] |= termios.NOFLSH
    termios.tcsetattr(0, termios.TCSANOW, attributes)


def wait_until_heard(child: int, by: signal.Signals) -> None:
    """Returns when the process has a handler of its own for the signal."""
    caught = re.compile(r"^SigCgt:\s*(\w+)$", re.MULTILINE)
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        found = caught.search(Path(f"/proc/{child}/status").read_text())
        if found and int(found[1], 16) >> (by - 1) & 1:
            return
        time.sleep(0.001)
    raise AssertionError(f"{by.name} has no handler after {DEADLINE:g} s")


def interrupt(
    place: Place, arguments: Sequence[str], after: float, by: bytes | signal.Signals = CTRL_C
) -> Ended:
    """A call that is interrupted ``after`` seconds: by what is typed, or by a signal to it. After
    none at all: before there is an interpreter, however late we are. Only Ctrl-C waits for one in
    our start script; what ends the interpreter itself says nothing, so other signals wait here."""
    at_once = after == 0.0 and by == CTRL_C
    child, screen = start(place, arguments, typed_before=at_once)
    if isinstance(by, signal.Signals):
        wait_until_heard(child, by)
    text, sent, began = b"", at_once, time.monotonic()
    while time.monotonic() - began < DEADLINE:
        left = after - (time.monotonic() - began)
        if left <= 0 and not sent:
            sent = True
            os.write(screen, by) if isinstance(by, bytes) else os.kill(child, by)
        if select.select([screen], [], [], DEADLINE if sent else max(0.0, left))[0]:
            try:
                text += os.read(screen, 1 << 16)
            except OSError:  # EIO: nobody has the other end any more
                break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(screen)
    return Ended(128 - code if code < 0 else code, text.decode())
