"""The guest built and booted by an ordinary user, with a builder killed and two racing.

Requires root (to become that user), Debian with the packages of setup/packages-demo.txt, and its
system Python; packages are fetched from where the host's apt fetches.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import psutil
import pytest
import qemu.qmp

import diskproof
from diskproof.guest.ours import build
from diskproof.process import native
from diskproof.process.start import CONFINE, run, start_process

USER = 12345
SYSTEM_PYTHON = Path("/usr/bin/python3")
BUILD = """
from diskproof.guest.ours.build import build_guest
print(build_guest(lambda step: print(step.partition(":")[0], flush=True)).id)
"""
BOOT = """
from pathlib import Path
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import require_guest
from diskproof.qemu.machine import GuestMachine
with start_guest(require_guest(), GuestMachine("tcg"), run_dir=Path(".")) as guest:
    print(guest.channel.exec(["id", "-u"], timeout=60).stdout.decode())
    guest.power_off()
"""
STEPS = ["packages", "kernel", "root", "initramfs"]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="needs a Python any user may run"),
]


@pytest.fixture
def home() -> Iterator[Path]:
    """An ordinary user's home with a Python, diskproof and our programs in it."""
    with tempfile.TemporaryDirectory(prefix="diskproof-test-") as folder:
        home = Path(folder)
        python = home / "python"
        run([str(SYSTEM_PYTHON), "-m", "venv", "--without-pip", str(python)], timeout=60)
        (python / "libexec" / "diskproof").mkdir(parents=True)
        for name in (build.AGENT, *build.PROGRAMS, CONFINE):
            shutil.copy(native.require_native(name), program_in(home, name))
        shutil.copytree(Path(diskproof.__file__).parent, home / "src" / "diskproof")
        shutil.copytree(Path(qemu.qmp.__file__).parent, home / "src" / "qemu" / "qmp")
        for path in (home, *home.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)
        yield home
        left = [p for p in psutil.process_iter(["uids"]) if p.info["uids"].real == USER]
        assert psutil.wait_procs(left, timeout=60)[1] == []


def program_in(home: Path, name: str) -> Path:
    return home / "python" / "libexec" / "diskproof" / name


class UserProgram:
    """A Python program of that user under way; its lines come over a pipe."""

    def __init__(self, stack: ExitStack, home: Path, log: Path, code: str = BUILD) -> None:
        reading, writing = os.pipe()
        self.lines: IO[str] = stack.enter_context(os.fdopen(reading))
        user = ["--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--reset-env"]
        settings = [f"HOME={home}", f"PYTHONPATH={home / 'src'}"]
        python = str(home / "python" / "bin" / "python")
        with os.fdopen(writing, "w") as stdout:
            self.process = stack.enter_context(
                start_process(
                    ["setpriv", *user, "env", *settings, python, "-c", code],
                    name="user",
                    log=log,
                    cwd=home,
                    stdout=stdout.fileno(),
                )
            )

    def finish(self) -> list[str]:
        """What it printed: a builder's steps (waiting is none), and last the guest's id."""
        lines = [line for line in self.lines.read().split() if line != "waiting"]
        assert self.process.wait(60) == 0, self.process.read_log().decode()
        return lines


def test_an_ordinary_user_builds_it_once(home: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        killed = UserProgram(stack, home, tmp_path / "killed")
        assert [next(killed.lines).strip(), next(killed.lines).strip()] == ["packages", "kernel"]
        os.kill(killed.process.pid, signal.SIGKILL)
        assert killed.process.wait(60) == -signal.SIGKILL
        folder = home / ".cache" / "diskproof" / "guest"
        (unfinished,) = (path for path in folder.iterdir() if path.is_dir())
        assert unfinished.name.startswith("unfinished-")

        pair = [UserProgram(stack, home, tmp_path / name) for name in ("one", "two")]
        one, two = (builder.finish() for builder in pair)
    assert one[-1] == two[-1]
    assert sorted([*one[:-1], *two[:-1]], key=STEPS.index) == STEPS
    assert not list(folder.rglob("unfinished-*"))
    (base,) = (path for path in folder.iterdir() if path.is_dir())
    assert sorted(path.name.partition("-")[0] for path in base.iterdir()) == [
        "guest.json",
        "initrd",
        "kernel",
        "modules",
        "root.squashfs",
    ]
    with ExitStack() as stack:
        assert UserProgram(stack, home, tmp_path / "again").finish() == [one[-1]]
        assert UserProgram(stack, home, tmp_path / "boot", BOOT).finish() == ["0"]
        program = program_in(home, build.PROGRAMS[-1])
        program.write_bytes(program.read_bytes() + b"changed")
        changed = UserProgram(stack, home, tmp_path / "changed").finish()
    assert changed[:-1] == ["initramfs"] and changed[-1] != one[-1]
