"""``diskproof audit --guest`` of real guests: what their kernels and databases do to their disks.

Requires the built guest, qemu-system-x86_64, qemu-img, mmdebstrap (once), e2fsprogs, root.
"""

import json
import shutil
import socket
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import DIALECTS
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.own.qemu_agent import QemuAgent
from diskproof.process.start import Process, run, start_process
from support.libvirt_sessions import MISSING, LibvirtSession, domain, start_libvirt
from support.own_guests import OwnDebian, build_own_debian
from support.qemus import await_socket

POSTGRES = (
    "# a cluster\nfsync = off   # faster\nsynchronous_commit = on\ndata_directory = '/mnt/pg'\n"
)
MYSQL = "[mysqld]\ndatadir = /var/lib/mysql\ninnodb-flush-log-at-trx-commit = 2\n"


@pytest.fixture(scope="module")
def debian(guest_files: GuestFiles) -> OwnDebian:
    return build_own_debian(guest_files)


@contextmanager
def started(debian: OwnDebian, folder: Path) -> Iterator[tuple[Process, Path]]:
    """The machine as a user starts it: a system disk and one for data, and the agent's socket."""
    boot = tomllib.loads(debian.table)
    data, agent = folder / "data.raw", folder / "qga.sock"
    run(["mkfs.ext4", "-q", "-F", str(data), "16M"], timeout=60)
    overlay = folder / "system.qcow2"
    run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(debian.image)]
        + [str(overlay)],
        timeout=60,
    )
    system = f"file={overlay},format=qcow2,if=none,id=s,cache=writeback"
    argv = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-m", "256", "-accel", "tcg"]
    argv += ["-name", "shop", "-cpu", "max", "-kernel", boot["kernel"], "-initrd", boot["initrd"]]
    argv += ["-append", boot["append"], "-no-reboot", "-serial", f"file:{folder}/console"]
    argv += ["-drive", system, "-device", "virtio-blk-pci,drive=s,id=system"]
    argv += ["-drive", f"file={data},format=raw,if=none,id=d,cache=none"]
    argv += ["-device", "virtio-blk-pci,drive=d,id=data", "-device", "virtio-serial-pci"]
    argv += ["-chardev", f"socket,path={agent},server=on,wait=off,id=qga"]
    argv += ["-device", "virtserialport,chardev=qga,name=org.qemu.guest_agent.0"]
    with start_process(argv, name="qemu", log=folder / "log") as process:
        await_socket(agent, process)
        yield process, agent


def plant(agent: Path, *lines: str) -> None:
    """Commands in the guest, over the agent as its owner has it; then the socket is free again."""
    with closing(socket.socket(socket.AF_UNIX)) as connected:
        connected.connect(str(agent))
        talking = QemuAgent(connected)
        talking.wait_ready(120)
        for line in lines:
            done = talking.run(["/bin/sh", "-c", line], timeout=60)
            assert done.status == 0, done.stderr


def audit(folder: Path, process: Process, *arguments: str) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "diskproof", "audit", str(process.pid), *arguments, "--json"]
    done = run(argv, timeout=120, cwd=folder, check=False)
    (machine,) = json.loads(done.text)["machines"]
    return done.returncode, {disk["name"]: disk for disk in machine["disks"]} | {
        "obstacles": json.loads(done.text)["obstacles"]
    }


def bad_rules(disk: dict[str, Any]) -> set[str]:
    return {r["rule"] for r in disk["remarks"] if r["effect"] in ("loses", "may lose", "unknown")}


def test_what_a_guest_does_to_its_disks_is_found(debian: OwnDebian, tmp_path: Path) -> None:
    with started(debian, tmp_path) as (process, agent):
        mounted = "mkdir -p /mnt && /bin/busybox mount -o barrier=1 /dev/vdb /mnt"
        plant(agent, mounted)
        code, sound = audit(tmp_path, process, "--guest")
        assert code == 0, sound
        ours = [o for o in sound["obstacles"] if str(process.pid) in o]  # others' may not answer
        assert ours == [], sound
        for name in ("system", "data"):
            assert sound[name]["verdict"] == "keeps"
            assert sound[name]["layers"]["guest"]["levels"]["write_cache"] == "write back"
        plant(
            agent,
            "echo 'write through' > /sys/block/vda/queue/write_cache",
            "/bin/busybox mount -o remount,barrier=0 /mnt",
            "mkdir -p /mnt/pg /etc/postgresql/15/main /etc/mysql",
            f"printf '%s' \"{POSTGRES}\" > /etc/postgresql/15/main/postgresql.conf",
            f"printf '%s' '{MYSQL}' > /etc/mysql/my.cnf",
        )
        code, found = audit(tmp_path, process, "--guest")
        _, without = audit(tmp_path, process)
    assert code == 1
    assert bad_rules(found["system"]) == {"guest-write-cache", "guest-innodb-flush"}
    assert bad_rules(found["data"]) == {"guest-no-barrier", "guest-fsync-off"}
    assert "/sys/block/vda/queue/write_cache" in json.dumps(found["system"]["remarks"])
    assert "guest" not in without["system"]["layers"], "nobody said that it may be asked"


def test_a_guest_without_an_agent_is_told(tmp_path: Path) -> None:
    """Nobody answers behind the socket: a sentence, after some seconds."""
    image, agent = tmp_path / "a.raw", tmp_path / "qga.sock"
    image.write_bytes(bytes(1 << 20))
    argv = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-m", "16"]
    argv += ["-drive", f"file={image},format=raw,if=virtio,cache=none", "-name", "mute"]
    argv += ["-chardev", f"socket,path={agent},server=on,wait=off,id=qga", "-device"]
    argv += ["virtio-serial-pci", "-device"]
    argv += ["virtserialport,chardev=qga,name=org.qemu.guest_agent.0"]
    with start_process(argv, name="qemu", log=tmp_path / "log") as process:
        await_socket(agent, process)
        code, found = audit(tmp_path, process, "--guest")
    assert code == 0
    assert any("no QEMU guest agent answered" in each for each in found["obstacles"])


@pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}")
def test_a_guest_of_libvirt_is_asked_through_libvirt(debian: OwnDebian) -> None:
    """Its agent's socket is libvirt's, and stays that."""
    boot = tomllib.loads(debian.table)
    with start_libvirt() as libvirt:
        files = {"kernel": boot["kernel"], "initrd": boot["initrd"], "system": debian.image}
        for name, path in files.items():
            shutil.copy(path, libvirt.folder / name)
            (libvirt.folder / name).chmod(0o666)
        system = str(libvirt.folder / "system")
        disk = DIALECTS["libvirt"].write(
            {"format": "raw", "cache": "none", "bus": "virtio-blk"}, Target(image=system)
        )
        port = (
            "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
        )
        machine = domain("told", disk.text, port, machine="pc").replace("64", "256", 1)
        kernel = f"<kernel>{libvirt.folder}/kernel</kernel><initrd>{libvirt.folder}/initrd</initrd>"
        kernel += f"<cmdline>{boot['append']}</cmdline></os>"
        libvirt.virsh("define", libvirt.write("a.xml", machine.replace("</os>", kernel)))
        libvirt.virsh("start", "told")
        ask(libvirt, {"execute": "guest-ping"})
        line = "echo 'write through' > /sys/block/vda/queue/write_cache"
        flip = {"path": "/bin/sh", "arg": ["-c", line], "capture-output": True}
        begun = ask(libvirt, {"execute": "guest-exec", "arguments": flip})
        status = {"execute": "guest-exec-status", "arguments": begun}
        end = time.monotonic() + 300
        while not ask(libvirt, status)["exited"]:  # told once, then forgotten
            assert time.monotonic() < end
            time.sleep(0.3)
        argv = [sys.executable, "-m", "diskproof", "audit", "told", "--guest", "--json"]
        done = run(argv, timeout=300, check=False, env=libvirt.environment)
        ask(libvirt, {"execute": "guest-ping"})
    ((found,),) = (machine["disks"] for machine in json.loads(done.text)["machines"])
    assert done.returncode == 1 and bad_rules(found) == {"guest-write-cache"}, done.text


def ask(libvirt: LibvirtSession, request: dict[str, object]) -> dict[str, object]:
    """What the guest's agent answers, once it is there."""
    end = time.monotonic() + 300
    while "error:" in (
        said := libvirt.virsh("qemu-agent-command", "told", json.dumps(request), check=False)
    ):
        assert time.monotonic() < end, "no agent"
        time.sleep(0.3)
    answer: dict[str, object] = json.loads(said)["return"]
    return answer
