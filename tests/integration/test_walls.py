"""The walls around what parses foreign bytes, as the kernel has them while it runs.

Requires qemu-storage-daemon, qemu-nbd, tgtd and fio.
"""

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from diskproof.backings import NO_CONSENT, start_place
from diskproof.backings.place import start_run_dir
from diskproof.drive import Drive
from diskproof.process.cage import (
    BARE_CAGE,
    CLIENT_CAGE,
    LOOK_MEMORY,
    OPEN_CAGE,
    SERVER_MEMORY,
    Cage,
    cage_args,
)
from diskproof.process.native import require_native
from diskproof.process.run_user import require_run_user
from diskproof.process.start import CONFINE, find_tool, run, start_process
from diskproof.records import BackingSpec
from support.disks import run_fio, start_drive

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
NO_CAPABILITY = "0" * 16
SYSTEM_PYTHON = Path("/usr/bin/python3")


def read_status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        name: " ".join(rest.split()) for name, _, rest in (line.partition(":") for line in lines)
    }


def read_limits(pid: int) -> dict[str, tuple[str, str]]:
    """Soft and hard ones."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:26].strip(): (line[26:46].strip(), line[47:67].strip()) for line in lines}


def require_walls(pid: int, memory: int) -> None:
    """User, rights, filter and bounds of a process that runs."""
    status, limits = read_status(pid), read_limits(pid)
    if os.geteuid() == 0:
        user = " ".join([str(require_run_user())] * 4)
        assert (status["Uid"], status["Gid"], status["Groups"]) == (user, user, "")
        assert {status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {
            NO_CAPABILITY
        }
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert limits["Max core file size"] == ("0", "0")
    assert limits["Max data size"] == (str(memory), str(memory))
    for name, most in (("Max open files", 65_536), ("Max processes", 32_768)):
        soft, hard = limits[name]
        assert soft == hard and int(soft) <= most


@contextmanager
def loaded(drive: Drive) -> Iterator[int]:
    """fio at work on a drive, for the length of a block; gives its process."""
    options = {"time_based": "1", "runtime": "1500ms", "cpus_allowed": "0"}
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(run_fio(drive, **options).returncode))
    thread.start()
    try:
        yield find_started("fio")
    finally:
        thread.join()
    assert done == [0]


def find_started(name: str) -> int:
    """Our child of that name once it is between its walls: the filter is the last of them."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                if child.name() == name:
                    return child.pid
        time.sleep(0.01)
    raise AssertionError(f"no {name} was started")


@pytest.mark.parametrize("aio", ["threads", "native", "io_uring"])
def test_the_storage_daemon_and_its_client(tmp_path: Path, aio: str) -> None:
    cache = "none" if aio == "native" else "writeback"
    with start_drive(tmp_path, frontend="daemon", format="qcow2", aio=aio, cache=cache) as drive:
        require_walls(drive.facts.pids[0], SERVER_MEMORY)
        with loaded(drive) as fio:
            require_walls(fio, SERVER_MEMORY)


@pytest.mark.parametrize("engine", ["libaio", "io_uring"])
def test_fio_on_the_host(tmp_path: Path, engine: str) -> None:
    with start_drive(tmp_path, frontend="host") as drive:
        drive.facts = replace(drive.facts, fio={**drive.facts.fio, "ioengine": engine})
        with loaded(drive) as fio:
            require_walls(fio, SERVER_MEMORY)


@AS_ROOT
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("nbd", (("aio", "threads"), ("cache", "none"), ("discard", "unmap"))),
        ("iscsi", (("store", "fileio"),)),
    ],
)
def test_servers_of_network_disks(
    tmp_path: Path, kind: str, options: tuple[tuple[str, str], ...]
) -> None:
    if kind == "iscsi" and find_tool("tgtd") is None:
        pytest.skip("needs tgtd")
    below = (("path", str(tmp_path)),)
    spec = BackingSpec("net", kind, options, BackingSpec("d", "directory", below))
    with start_place(spec, NO_CONSENT) as place, start_run_dir(place) as folder:
        assert place.service
        with place.service.start(folder, 16 << 20) as disk:
            for pid in disk.pids:
                require_walls(pid, SERVER_MEMORY)


# Harmless for who may make them: no argument makes sense.
CALLS = """
import ctypes, errno, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
calls = dict(ptrace=101, syslog=103, setuid=105, personality=135, pivot_root=155, acct=163,
    mount=165, umount2=166, swapon=167, reboot=169, init_module=175, add_key=248, keyctl=250,
    ioprio_set=251, unshare=272, perf_event_open=298, open_by_handle_at=304, setns=308,
    process_vm_readv=310, kexec_file_load=320, bpf=321, userfaultfd=323, fsopen=430,
    pidfd_getfd=438, mount_setattr=442)
for name, number in calls.items():
    done = libc.syscall(number, *[ctypes.c_long(-2)] * 5)
    print(name, errno.errorcode[ctypes.get_errno()] if done < 0 else "done")
def told(name, number, *arguments):
    done = libc.syscall(number, *map(ctypes.c_long, arguments))
    if done == 0 and name in ("fork", "clone"):
        os._exit(0)
    print(name, errno.errorcode[ctypes.get_errno()] if done < 0 else "done")
told("af_alg", 41, 38, 5, 0)
told("clone_newuser", 56, 0x10000000 | 17, 0, 0, 0, 0) if sys.argv[1] == "walls" else None
told("clone3", 435, 0, 0)
told("x32", 0x40000000 | 39)
told("fork", 57)
thread = threading.Thread(target=print, args=("thread", "done"))
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of calls are x86-64's")
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="needs a Python in /usr")
@AS_ROOT
def test_calls_that_nothing_here_needs_are_refused() -> None:
    """Refused to root as well: it is the filter, not the user. Without walls none of them is."""
    walls = cage_args(str(require_native(CONFINE)), BARE_CAGE)
    told = {}
    for who, prefix in (("walls", walls), ("nothing", [])):
        done = run([*prefix, str(SYSTEM_PYTHON), "-c", CALLS, who], timeout=60)
        told[who] = dict(line.split() for line in done.text.splitlines())
    inside, outside = told["walls"], told["nothing"]
    assert inside.pop("thread") == outside.pop("thread") == "done"
    assert (inside.pop("clone3"), inside.pop("x32")) == ("ENOSYS", "ENOSYS")
    assert set(inside.values()) == {"EPERM"} and len(inside) > 25
    assert outside.pop("clone3") != "ENOSYS" and outside.pop("fork") == "done"
    allowed = {name for name, answer in outside.items() if answer != "EPERM"}
    assert len(allowed) > 15 and {"mount", "keyctl", "bpf", "unshare"} <= allowed


@pytest.mark.parametrize(
    ("cage", "script", "told"),
    [
        (OPEN_CAGE, "(echo child)", "child"),
        (BARE_CAGE, "(echo child)", "Cannot fork"),
        (CLIENT_CAGE, "exec taskset --cpu-list 0 echo here", "here"),
        (BARE_CAGE, "exec taskset --cpu-list 0 echo here", "failed to set"),
        (BARE_CAGE.within(64 << 20), "ulimit -d; ulimit -c", f"{64 << 10}\n0"),
    ],
)
def test_a_cage_says_what_its_program_may(
    tmp_path: Path, cage: Cage, script: str, told: str
) -> None:
    log = tmp_path / "log"
    with start_process(["sh", "-c", script], name="sh", log=log, confined=True, cage=cage) as child:
        child.wait(30)
    assert told in log.read_text()


def test_more_memory_than_a_look_may_take_is_refused() -> None:
    """As the kernel refuses it: the program fails, the host does not."""
    take = f"b = bytearray({LOOK_MEMORY})"
    argv = [str(SYSTEM_PYTHON), "-c", take]
    cage = BARE_CAGE.within(LOOK_MEMORY)
    done = run(argv, timeout=60, check=False, confined=True, cage=cage)
    assert "MemoryError" in done.error_text
    assert run(argv, timeout=60, check=False, confined=True, cage=BARE_CAGE).returncode == 0
