"""Running microVMs, found in /proc. The VMMs need KVM, so that a shell of that name stands for
one: its arguments, its open files and its configuration are real."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.host.machines import microvms
from diskproof.records.virtual_machines import Machine

HOLD = "\necho ready; read line; wait"


@contextmanager
def start_vmm(tmp_path: Path, name: str, *arguments: str, opens: str) -> Iterator[int]:
    """A process with that program's name and arguments, and with what ``opens`` redirects."""
    program = tmp_path / name
    if not program.exists():
        shutil.copy("/bin/dash", program)
    argv = [str(program), "-c", f"exec {opens}{HOLD}", name, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.stdin.write(b"\n\n")
            process.stdin.close()
            assert process.wait(10) == 0


def find_one(pid: int) -> Machine:
    found = [item for item in microvms.find() if isinstance(item, Machine) and item.pid == pid]
    assert len(found) == 1
    return found[0]


def write_config(path: Path, cache: str) -> None:
    drives = [{"drive_id": "data", "path_on_host": "data.img", "is_root_device": False,
               "is_read_only": False, "cache_type": cache}]  # fmt: skip
    path.write_text(json.dumps({"boot-source": {}, "drives": drives}))


def test_a_firecracker_with_a_configuration_file_is_read(tmp_path: Path) -> None:
    write_config(tmp_path / "vm.json", "Unsafe")
    (tmp_path / "data.img").write_bytes(bytes(4096))
    arguments = ("--id", "fc1", "--config-file=vm.json", "--api-sock", "/run/fc1.sock")
    with start_vmm(tmp_path, "firecracker", *arguments, opens="3<>data.img") as pid:
        machine = find_one(pid)
        (disk,) = machine.disks
        assert (machine.name, machine.manager) == ("fc1", "firecracker")
        assert disk.running is not None and disk.running.levels["flush"] == "not advertised"
        assert disk.image == str(tmp_path / "data.img")
        assert [remark.rule for remark in disk.remarks] == ["not-advertised"]
        assert any("/run/fc1.sock" in note and "not asked" in note for note in machine.notes)
        # what is written now is for the next start
        write_config(tmp_path / "vm.json", "Writeback")
        later = (tmp_path / "vm.json").stat().st_mtime + 10
        os.utime(tmp_path / "vm.json", (later, later))
        (disk,) = find_one(pid).disks
        assert disk.running is None and disk.pending is not None
        # and what is no configuration any more is a sentence
        (tmp_path / "vm.json").write_text("{")
        found = [item for item in microvms.find() if isinstance(item, str) and str(pid) in item]
        assert len(found) == 1 and "cannot be read" in found[0]


def test_one_that_was_configured_over_its_api_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "data.img").write_bytes(bytes(4096))
    arguments = ("--api-sock", "fc.sock", "--log-path", "fc.log")
    opens = "3<>data.img 4<>fc.log 5<data.img"
    with start_vmm(tmp_path, "firecracker-v1.9.0-x86_64", *arguments, opens=opens) as pid:
        machine = find_one(pid)
        (disk,) = machine.disks  # the log is named by an option, and is none
        assert disk.image == str(tmp_path / "data.img") and not disk.layers
        assert [remark.effect for remark in disk.remarks] == ["unknown"]
        assert "curl --unix-socket fc.sock" in disk.remarks[0].what


def test_one_of_which_nothing_is_known_is_not_without_disks(tmp_path: Path) -> None:
    arguments = ("--config-file", "gone.json")
    with start_vmm(tmp_path, "firecracker", *arguments, opens="3</dev/null") as pid:
        (disk,) = find_one(pid).disks
        assert [remark.effect for remark in disk.remarks] == ["unknown"]
        assert "gone.json cannot be read" in disk.remarks[0].what


@pytest.mark.parametrize("name", ["cloud-hypervisor", "crosvm"])
def test_a_command_line_is_read_and_what_is_not_on_it_is_unknown(tmp_path: Path, name: str) -> None:
    for file in ("root.img", "data.img"):
        (tmp_path / file).write_bytes(bytes(4096))
    words = {
        "cloud-hypervisor": ("--disk", "path=root.img,direct=off", "--api-socket", "path=ch.sock"),
        "crosvm": ("run", "--block", "path=root.img,o_direct=false", "--socket", "c.sock"),
    }[name]
    with start_vmm(tmp_path, name, *words, opens="3<>root.img 4<>data.img") as pid:
        machine = find_one(pid)
        root, data = machine.disks
        assert root.running is not None and root.running.levels["flush"] == "advertised"
        assert root.running.levels["direct"] == "off" and "/proc" in root.running.source
        assert [remark.rule for remark in data.remarks] == ["not-on-command-line"]


def test_a_process_that_crosvm_made_of_itself_is_no_machine(tmp_path: Path) -> None:
    (tmp_path / "root.img").write_bytes(bytes(4096))
    opens = "3<>root.img 4<&0\n./crosvm -c 'read line <&4' crosvm run --block root.img &"
    with start_vmm(tmp_path, "crosvm", "run", "--block", "root.img", opens=opens) as pid:
        machines = [item for item in microvms.find() if isinstance(item, Machine)]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert children
        assert [each.pid for each in machines if str(each.pid) in (str(pid), *children)] == [pid]
