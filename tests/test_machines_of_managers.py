"""Machines of Proxmox and Incus are found on a host, below a root of our own, and nothing waits."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from diskproof.host.machines import incus, proxmox
from diskproof.host.machines.qemu_process import QemuProcess
from diskproof.records.virtual_machines import Machine
from support.patience import in_time

FIXTURES = Path(__file__).parent / "fixtures" / "machines"


def start_answering(argv: list[str]) -> subprocess.Popen[bytes]:
    """A program that copies its input, once it has begun: before that /proc tells of us."""
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin and child.stdout
    child.stdin.write(b"!")
    child.stdin.flush()
    assert child.stdout.read(1) == b"!"
    return child


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A root with the files of the node ``pve1`` and its neighbour ``pve2``, and our /proc."""
    own = tmp_path / "etc/pve/nodes/pve1/qemu-server"
    own.mkdir(parents=True)
    (tmp_path / "etc/pve/qemu-server").symlink_to("nodes/pve1/qemu-server")
    other = tmp_path / "etc/pve/nodes/pve2/qemu-server"
    other.mkdir(parents=True)
    for name in ("101.conf", "103.conf"):
        shutil.copy(FIXTURES / "proxmox" / name, own)
    shutil.copy(FIXTURES / "proxmox" / "102.conf", other)
    (tmp_path / "etc/pve/storage.cfg").write_text(
        "lvmthin: local-lvm\n\tthinpool data\n\tvgname pve\n\tcontent images\n"
    )
    (tmp_path / "proc").symlink_to("/proc")
    (tmp_path / "run/qemu-server").mkdir(parents=True)
    return tmp_path


def test_the_machines_of_this_node_are_found_with_its_storages(node: Path) -> None:
    found = list(proxmox.find(node, "pve1"))
    machines = [item for item in found if isinstance(item, Machine)]
    assert [machine.id for machine in machines] == ["101", "103"]
    disk = machines[0].disks[0]
    assert (disk.image, disk.kind) == ("/dev/pve/vm-101-disk-0", "block")
    assert disk.configured
    assert disk.configured.levels["aio"] == "io_uring"
    assert found == machines


def test_a_running_machine_is_joined_by_its_process(node: Path) -> None:
    file = node / "run/qemu-server/101.pid"
    child = start_answering(["/bin/sh", "-c", "cat", "kvm", "-id", "101"])
    try:
        file.write_text(f"{child.pid}\n")
        assert proxmox.find_pid(node, "101") == child.pid
        (node / "run/qemu-server/103.pid").write_text(f"{child.pid}\n")
        assert proxmox.find_pid(node, "103") is None  # a number that somebody else has by now
    finally:
        child.communicate()
    assert proxmox.find_pid(node, "101") is None
    for text in ("", "../1", "1" * 40, "x"):
        file.write_text(text)
        assert proxmox.find_pid(node, "101") is None


def test_files_that_cannot_be_read_are_told(node: Path) -> None:
    folder = node / "etc/pve/qemu-server"
    (folder / "104.conf").write_bytes(b"\xff\xfe\0" * 100)
    (folder / "105.conf").mkdir()
    (folder / "106.conf").symlink_to("/nonexistent")
    told = [item for item in proxmox.find(node, "pve1") if isinstance(item, str)]
    assert len(told) == 3
    assert all(".conf" in text for text in told)


def test_a_host_without_these_managers_has_nothing_to_tell(tmp_path: Path) -> None:
    assert list(proxmox.find(tmp_path)) == []
    assert list(incus.find(tmp_path)) == []


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root with a socket of Incus, a process of its daemon's name, and a client to be written."""
    (tmp_path / "var/lib/incus").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "proc").symlink_to("/proc")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    shutil.copy("/bin/cat", tmp_path / "incusd")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        monkeypatch.chdir(tmp_path)
        listener.bind("var/lib/incus/unix.socket")
        child = start_answering([str(tmp_path / "incusd")])
        stack.callback(child.communicate)
        yield tmp_path


def write_client(root: Path, script: str) -> None:
    (root / "bin/incus").write_text(f"#!/bin/sh\n{script}\n")
    (root / "bin/incus").chmod(0o755)


def test_the_machines_of_incus_are_listed_with_their_pools(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incus, "TIMEOUT_SECONDS", 60.0)  # on a busy host
    write_client(
        daemon,
        'test -d "$INCUS_CONF" && test -S "$INCUS_SOCKET" || exit 3\n'
        'case "$*" in\n'
        """"storage list --format json") echo '[{"name": "vg0", "driver": "lvm"}]';;\n"""
        f'"list --all-projects --format json") cat {FIXTURES}/incus/list.json;;\n'
        "*) exit 4;; esac",
    )
    machines = list(incus.find(daemon))
    assert [getattr(each, "name", each) for each in machines] == ["ci", "ledger"]
    assert isinstance(machines[0], Machine)
    assert machines[0].disks[0].configured
    assert machines[0].disks[0].configured.levels["aio"] == "io_uring"  # LVM's, which was told


CUT_NAME = b"abcdefghijklm\xc3"
"""The kernel cuts names after 15 bytes, in the middle of a character, too."""


def test_a_process_whose_name_is_no_text_ends_no_look(daemon: Path) -> None:
    (daemon / "proc").unlink()
    (daemon / "proc/1").mkdir(parents=True)
    (daemon / "proc/1/comm").write_bytes(CUT_NAME + b"\n")
    write_client(daemon, "exit 1")
    (told,) = incus.find(daemon)
    assert isinstance(told, str) and told.startswith("incusd is not running")


def test_a_thread_whose_name_is_no_text_is_one() -> None:
    name = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
    before = name.read_bytes()
    try:
        name.write_bytes(CUT_NAME)
        assert "abcdefghijklm\ufffd" in QemuProcess(os.getpid(), ()).threads
    finally:
        name.write_bytes(before)


@pytest.mark.parametrize(
    "script", ["sleep 60", "exit 1", "echo '['", "yes a", "echo '[{\"devices\": 1}]'"]
)
def test_a_client_that_does_not_answer_is_told_in_time(daemon: Path, script: str) -> None:
    write_client(daemon, script)
    found = in_time(5, lambda: list(incus.find(daemon)))
    assert all(isinstance(item, str) or not item.disks for item in found)


def test_a_daemon_that_does_not_run_is_not_started(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_client(daemon, f"touch {daemon}/asked")
    (daemon / "proc").unlink()
    (daemon / "proc").mkdir()
    (told,) = incus.find(daemon)
    assert "not started" in str(told)
    assert not (daemon / "asked").exists()
