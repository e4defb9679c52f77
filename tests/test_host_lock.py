"""The lock of the host: who has it, and what is told of them."""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.process.host_lock import (
    VARIABLE,
    find_holder,
    read_boot_id,
    start_alone,
    start_beside,
)
from diskproof.process.start import Process, start_process

HOLD = (
    "import fcntl, time; f = open({!r}); fcntl.flock(f, fcntl.LOCK_EX); "
    "print('held', flush=True); time.sleep(60)"
)


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lock"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@contextmanager
def held_by_another(lock: Path, study: str = "x.toml") -> Iterator[Process]:
    lock.touch()
    argv = [sys.executable, "-c", HOLD.format(str(lock)), "diskproof", "run", study]
    with start_process(argv, name="holder", log=lock.with_suffix(".log"), cwd=lock.parent) as it:
        while b"held" not in it.read_log():
            assert it.wait(0.02) is None, it.read_log()
        yield it


def test_one_has_it_and_the_next_is_told_who(lock: Path) -> None:
    with start_alone(False, print), pytest.raises(HostError) as refused:
        with start_alone(False, print):
            pytest.fail("two have it")
    assert refused.value.what.startswith(
        f"this host is being measured already, by process {os.getpid()} of "
    )
    assert "--wait" in refused.value.hint and f"kill {os.getpid()}" in refused.value.hint
    with start_alone(False, print):  # given back
        pass


def test_the_command_is_told_and_cannot_move_the_cursor(lock: Path) -> None:
    with (
        held_by_another(lock, study="\x1b[2J\rx\n") as holder,
        pytest.raises(HostError) as refused,
        start_alone(False, print),
    ):
        pytest.fail("two have it")
    assert f"process {holder.pid} of " in refused.value.what
    assert refused.value.what.endswith(": diskproof run \ufffd[2J\ufffdx\ufffd")
    assert refused.value.what.isprintable()


def test_a_killed_holder_has_it_no_more(lock: Path) -> None:
    with held_by_another(lock) as holder:
        os.kill(holder.pid, 9)
        holder.wait(60)
        with start_alone(False, print):
            pass


def test_who_waits_is_told_for_whom_and_how_long(lock: Path) -> None:
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            os.kill(holder.pid, 9)

    with held_by_another(lock) as holder, start_alone(True, tell):
        pass
    first, last = told
    assert first.startswith(f"waiting for process {holder.pid} of ") and last.startswith("waited ")


def test_workers_share_it_and_no_measurement_runs_beside_them(lock: Path) -> None:
    with start_beside("another host"), start_beside("another host"):
        with pytest.raises(HostError, match="measured already"), start_alone(False, print):
            pass
    with start_alone(False, print), start_beside(read_boot_id()):  # ours: its sender has the lock
        with pytest.raises(HostError), start_beside("another host"):
            pass


def test_a_lock_that_nobody_may_read_is_said(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock.mkdir()
    (lock / "deeper").symlink_to(lock / "deeper")
    monkeypatch.setenv(VARIABLE, str(lock / "deeper"))
    with pytest.raises(HostError, match="cannot be told") as error, start_alone(False, print):
        pass
    assert VARIABLE in error.value.hint


FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""The inode of the host's own (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""


def take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_the_kernel_itself_has_the_lock() -> None:
    """All processes of a host open the same inode; nobody is asked to write anything."""
    first, second = (os.open("/proc/self/ns/time", os.O_RDONLY) for _ in range(2))
    try:
        deadline = time.monotonic() + 60
        while not take(first):  # a real measurement runs beside this test: told, or just ended
            if find_holder(second):
                return
            if time.monotonic() > deadline:
                # Who is outside of our process namespace has it, and is seen by nobody in there.
                assert Path("/proc/self/ns/pid").stat().st_ino != FIRST_PID_NAMESPACE
                return
        holder = find_holder(second)
        assert holder is not None and os.fstat(first).st_ino == os.fstat(second).st_ino
    finally:
        os.close(first)
        os.close(second)
