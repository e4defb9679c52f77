"""QEMUs that run without a guest, for tests of who finds them."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.start import Process, run, start_process
from diskproof.qemu.qmp import Qmp, start_qmp

QEMU = "qemu-system-x86_64"
STILL = ("-S", "-display", "none", "-nodefaults", "-m", "64M")


@dataclass(frozen=True)
class Running:
    """A QEMU whose machine is made; ``qmp`` is on a socket without a name."""

    process: Process
    qmp: Qmp


def make_image(path: Path, form: str = "qcow2", size: str = "16M") -> Path:
    run(["qemu-img", "create", "-q", "-f", form, str(path), size], timeout=30)
    return path


def await_socket(path: Path, process: Process) -> None:
    """Until it listens: its file is there before that, and whoever comes between is refused."""
    end = time.monotonic() + 120
    with socket.socket(socket.AF_UNIX) as client:
        while client.connect_ex(str(path)):
            assert process.poll() is None and time.monotonic() < end, process.read_log().decode()
            time.sleep(0.02)


def await_open(process: Process, image: Path) -> None:
    """Until it has opened its disk, which it does after it has written its number."""
    end, files = time.monotonic() + 120, Path(f"/proc/{process.pid}/fd")
    while not any(each.resolve() == image.resolve() for each in files.glob("*")):
        assert process.poll() is None and time.monotonic() < end, process.read_log().decode()
        time.sleep(0.02)


@contextmanager
def start_still(
    folder: Path,
    args: Sequence[str],
    *,
    fds: Sequence[int] = (),
    name: str = "still",
    around: Sequence[str] = (),
) -> Iterator[Running]:
    """A QEMU in ``folder`` that stands still, ready once its monitor has answered. ``around`` is a
    command that becomes it."""
    with ExitStack() as stack:
        ours, theirs = socket.socketpair()
        with theirs:
            control = f"socket,id=test,fd={theirs.fileno()}"
            argv = [*around, QEMU, "-name", name, *STILL, "-chardev", control]
            starting = start_process(
                [*argv, "-mon", "chardev=test,mode=control", *args],
                name="qemu",
                log=folder / "qemu.log",
                cwd=folder,
                pass_fds=(theirs.fileno(), *fds),
            )
            process = stack.enter_context(starting)
        qmp = stack.enter_context(start_qmp(ours, 120.0))
        qmp.execute("query-status", timeout=120.0)
        yield Running(process, qmp)
