"""QEMU command lines as machines, layer by layer. Requires nothing."""

import json
import shlex
import time
import tomllib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice.qemu_options import MAX_TEXT, read_keys, split_commands
from diskproof.advice.qemu_read import READING, read_command_line
from diskproof.errors import DiskproofError, UsageError
from diskproof.records.virtual_machines import Machine, MachineDisk
from support.machine_fixtures import MACHINES, read_fixture

Q = "qemu-system-x86_64 -m 1G "
BLK = " -device virtio-blk-pci,drive=d"


def machine(text: str, name: str = "vm.sh") -> Machine:
    assert READING.claims(text)
    (found,) = READING.read_machines(text, name)
    return found


def disk(text: str) -> MachineDisk:
    (found,) = machine(text).disks
    return found


def brief(found: MachineDisk) -> str:
    """Cache, aio, discard, bus, iothread and what was said, in short."""
    assert found.configured is not None
    names = ("cache", "aio", "discard", "bus", "iothread")
    levels = " ".join(found.configured.levels.get(name, "?") for name in names)
    rules = " ".join(f"{r.rule}:{r.effect}" for r in found.remarks)
    return f"{levels} {'ro ' if found.read_only else ''}{rules}".strip()


J = json.dumps
LINES = {
    # -drive, and what cache= is
    "-drive file=a,format=raw": "writeback threads ignore ide off",
    "-hda a": "writeback threads ignore ide off",
    "a.img": "writeback threads ignore ide off",
    "-machine q35 -hda a": "writeback threads ignore ahci off",
    "-M pc-q35-7.2,accel=kvm -drive file=a": "writeback threads ignore ahci off",
    "-drive file=a,cache=none,aio=native,discard=unmap": "none native unmap ide off",
    "-drive file=a,cache=off,aio=io_uring,discard=on": "none io_uring unmap ide off",
    "-drive file=a,if=virtio,cache=unsafe": "unsafe threads ignore virtio-blk off",
    "-drive file=a,cache=writethrough": "writethrough threads ignore ide off",
    "-drive file=a,cache=directsync,format=qcow2": "directsync threads ignore ide off",
    "-drive file=a,cache=none,cache.no-flush=on": "unsafe threads ignore ide off",
    "-drive file=a,cache=unsafe,cache.no-flush=off": "writeback threads ignore ide off",
    "-drive file=a,cache.direct=on,cache.writeback=off": "directsync threads ignore ide off",
    "-drive file=a,cache=none,file.cache.direct=off": (
        "writeback threads ignore ide off uneven-direct:note"
    ),
    "-drive driver=qcow2,file.driver=file,file.filename=a,file.aio=native,cache.direct=on": (
        "none native ignore ide off"
    ),
    "-drive file=a,if=virtio,cache=writethrough": (
        "writethrough threads ignore virtio-blk off guest-may-write-back:note"
    ),
    "-drive file=a,if=none,id=d,cache=writethrough -device virtio-blk-pci,drive=d,write-cache=on": (
        "writeback threads ignore virtio-blk off"
    ),
    "-drive file=a,if=none,id=d -device virtio-blk-pci,drive=d,write-cache=off,config-wce=off": (
        "writethrough threads ignore virtio-blk off"
    ),
    "-drive file=a,if=virtio -global virtio-blk-pci.write-cache=off": (
        "writethrough threads ignore virtio-blk off guest-may-write-back:note"
    ),
    "-drive file=a,if=virtio -global driver=virtio-blk-device,property=write-cache,value=off": (
        "writethrough threads ignore virtio-blk off guest-may-write-back:note"
    ),
    "-drive file=a,if=none,id=d -global virtio-blk-pci.write-cache=off"
    " -device virtio-blk-pci,drive=d,write-cache=on": "writeback threads ignore virtio-blk off",
    "-drive file=a,if=none,id=d -device virtio-blk-pci,drive=d,id=w -set drive.d.cache=unsafe"
    " -set device.w.write-cache=off": (
        "unsafe threads ignore virtio-blk off guest-may-write-back:note"
    ),
    "-drive file=a,readonly=on": "writeback threads ignore ide off ro",
    "-drive file=a,media=cdrom": "writeback threads ignore ide off ro",
    "-drive file=a,cache=none,snapshot=on": "unsafe threads ignore ide off snapshot:loses",
    "-snapshot -hda a": "unsafe threads ignore ide off snapshot:loses",
    "-drive file=a,werror=ignore": "writeback threads ignore ide off werror-ignore:may lose",
    # what nobody can tell is left out
    "-drive file=a,cache=$MODE,aio=$AIO": "? ? ignore ide off",
    "-drive file=a,cache=quick": "? threads ignore ide off",
    "-M microvm -drive file=a": "writeback threads ignore ? off",
    "-drive file=nbd://host/x,if=virtio": "writeback ? ignore virtio-blk off",
    "-drive file=rbd:pool/x:id=u,if=virtio,cache=writeback": "writeback ? ignore virtio-blk off",
    "-drive file=a,if=none,id=d -device usb-storage,drive=d": "writeback threads ignore ? off",
    "-drive file=a,if=none,id=d -device lsi53c895a -device scsi-hd,drive=d": (
        "writeback threads ignore ? off"
    ),
    # buses and threads
    "-drive file=a,if=none,id=d -device virtio-scsi-pci,id=s,iothread=t -object iothread,id=t"
    " -device scsi-hd,drive=d,bus=s.0": "writeback threads ignore virtio-scsi on",
    "-drive file=a,if=none,id=d -device virtio-blk-pci,drive=d,iothread=t -object iothread,id=t": (
        "writeback threads ignore virtio-blk on"
    ),
    "-drive file=a,if=none,id=d -device virtio-blk-pci,drive=d,iothread=t": (
        "writeback threads ignore virtio-blk on iothread-missing:will not start"
    ),
    "-drive file=a,if=none,id=d -device ide-hd,drive=d,iothread=t -object iothread,id=t": (
        "writeback threads ignore ide on iothread-refused:will not start"
    ),
    "-drive file=a,if=none,id=d -device ich9-ahci,id=h -device ide-hd,drive=d,bus=h.0": (
        "writeback threads ignore ahci off"
    ),
    "-drive file=a,if=none,id=d -device nvme,drive=d,serial=x": "writeback threads ignore nvme off",
    "-drive file=a,if=none,id=d -device nvme,id=n,serial=x -device nvme-ns,drive=d,bus=n": (
        "writeback threads ignore nvme off"
    ),
    # -blockdev: each named node has its own
    "-blockdev driver=file,filename=a,node-name=d,cache.direct=on" + BLK: (
        "none threads ignore virtio-blk off"
    ),
    "-blockdev driver=qcow2,node-name=d,cache.direct=on,file.driver=file,file.filename=a" + BLK: (
        "none threads ignore virtio-blk off"
    ),
    "-blockdev driver=file,filename=a,node-name=f -blockdev"
    " driver=qcow2,node-name=d,file=f,cache.direct=on,cache.no-flush=on,discard=unmap" + BLK: (
        "writeback threads ignore virtio-blk off uneven-no-flush:note uneven-direct:note"
        " half-discard:ignored"
    ),
    "-blockdev driver=file,filename=a,node-name=f,cache.no-flush=on"
    " -blockdev driver=raw,node-name=d,file=f" + BLK: (
        "unsafe threads ignore virtio-blk off uneven-no-flush:loses"
    ),
    "-blockdev driver=file,filename=a,node-name=f,cache.direct=on,discard=unmap -blockdev"
    " driver=file,filename=b,node-name=b,cache.no-flush=on -blockdev"
    " driver=qcow2,node-name=d,file=f,cache.direct=on,discard=unmap,"
    "backing.driver=raw,backing.file=b" + BLK: (
        "none threads unmap virtio-blk off backing-no-flush:may lose backing-direct:note"
    ),
    "-blockdev driver=host_device,filename=/dev/x,node-name=f,aio=native,cache.direct=on -blockdev"
    " driver=throttle,node-name=t,file=f,throttle-group=g,cache.direct=on"
    " -blockdev driver=raw,node-name=d,file=t,cache.direct=on" + BLK: (
        "none native ignore virtio-blk off"
    ),
    "-blockdev driver=quorum,node-name=d,children.0=x,children.1=y" + BLK: "? ? ? ? ?",
    "-blockdev driver=raw,node-name=d,file=d" + BLK: "? ? ? ? ?",
}


@pytest.mark.parametrize("line", LINES)
def test_lines_and_what_they_come_to(line: str) -> None:
    assert brief(disk(Q + line)) == LINES[line]


LIBVIRT_LOG = (MACHINES / "qemu" / "libvirt-shop.log").read_text()


def test_libvirts_log_has_its_last_start() -> None:
    first, second = LIBVIRT_LOG.replace("MODE", "off"), LIBVIRT_LOG.replace("MODE", "on")
    found = machine(
        first.replace("isn't", "is not") + second.replace("isn't", "is not"), "shop.log"
    )
    assert (found.name, found.manager) == ("shop", "libvirt")
    (only,) = found.disks
    assert brief(only) == "none native unmap virtio-blk on"
    assert (only.name, only.image, only.kind) == ("virtio-disk0", "/img/shop.qcow2", "file")
    assert only.configured is not None
    assert only.configured.assumed == {"detect-zeroes", "l2-cache-size"}
    reread = READING.read_machines("qemu-system-x86_64 " + only.line, "line")[0].disks[0]
    assert reread.configured is not None
    assert reread.configured.levels == only.configured.levels


EXPECTED = tomllib.loads((MACHINES / "qemu" / "expected.toml").read_text())
_JUDGED_ELSEWHERE = {"unknown", "no-flush", "read-only"}


@pytest.mark.parametrize("file", EXPECTED)
def test_configurations_and_what_is_said_of_them(file: str) -> None:
    """A fault that was planted is named, and nothing else is."""
    disks = [disk for found in read_fixture(READING, "qemu", file) for disk in found.disks]
    assert {disk.name for disk in disks} == EXPECTED[file].keys()
    for name, expected in EXPECTED[file].items():
        found = [disk for disk in disks if disk.name == name]
        layers = [disk.configured.levels for disk in found if disk.configured]
        rules = {remark.rule for disk in found for remark in disk.remarks}
        assert rules == set(expected) - _JUDGED_ELSEWHERE
        assert ("no-flush" in expected) == any(one.get("cache") == "unsafe" for one in layers)
        server = any(disk.kind == "network" for disk in found)
        assert ("unknown" in expected) == (server or any("cache" not in one for one in layers))
        assert ("read-only" in expected) == all(disk.read_only for disk in found)


def test_what_is_pasted_mends_it() -> None:
    (found,) = read_fixture(READING, "qemu", "start-nodes.sh")
    changes = [(one, r) for one in found.disks for r in one.remarks if r.change is not None]
    assert [remark.rule for _, remark in changes] == ["uneven-no-flush", "half-discard"]
    for one, remark in changes:
        assert remark.change is not None
        after = disk(Q + remark.change.text)
        assert remark.rule not in [later.rule for later in after.remarks]
        assert (after.name, after.image) == (one.name, one.image)


def test_managers_are_told_by_their_paths() -> None:
    lines = {
        "/usr/bin/kvm -id 100 -name web -pidfile /var/run/qemu-server/100.pid": "proxmox",
        Q + "-name a -readconfig /run/incus/a/qemu.conf": "incus",
        Q + "-smbios 'type=1,product=OpenStack Nova' -name guest=instance-00000001": "nova",
        Q + "-name guest=default_vm -pidfile /run/kubevirt-private/x": "kubevirt",
        Q + "-name a": "qemu",
    }
    assert {line: machine(line).manager for line in lines} == lines


def test_scripts_prints_of_ps_and_configuration_files() -> None:
    script = """#!/bin/sh
    # it's only a comment; qemu-system-x86_64 -hda no
    if true; then exec qemu-system-x86_64 -name one -drive "file=$HOME/a b,cache=none" $MORE; fi
    /usr/libexec/qemu-kvm -name two -hda 'x,y' & echo done
    """
    one, two = READING.read_machines(script, "start.sh")
    assert [(m.name, m.disks[0].image) for m in (one, two)] == [
        ("one", "$HOME/a b"),
        ("two", "x,y"),
    ]
    assert "not known" in one.notes[0]
    node = {"driver": "file", "filename": "/a b", "node-name": "d", "cache": {"direct": True}}
    assert brief(disk(Q + f"-blockdev {J(node)}" + BLK)) == "none threads ignore virtio-blk off"
    config = '[drive "d"]\nfile = "a"\nif = "none"\ncache = "unsafe"\n'
    config += '# a disk\n[device "w"]\ndriver = "virtio-blk-pci"\ndrive = "d"\n'
    assert brief(disk(config)) == "unsafe threads ignore virtio-blk off"
    assert brief(disk(Q + disk(config).line)) == brief(disk(config))
    argv = "\0".join([*shlex.split(Q), "-hda", "a b"]) + "\0"
    assert disk(argv).image == "a b"
    unread = machine(Q + "-readconfig /etc/vm.conf")
    assert unread.disks == ()
    assert "/etc/vm.conf was not read" in unread.notes[0]
    idle = machine(Q + "-object iothread,id=t -hda a")
    assert idle.notes == ("no disk uses the iothread t",)
    assert [m.disks for m in READING.read_machines(Q + "$DISKS -drive $D", "x")] == [()]


@pytest.mark.parametrize(
    "text",
    [
        Q + "-hda 'a",
        Q + "-blockdev '{\"driver\":'",
        Q + "-blockdev '{]'",
        Q + "-blockdev '" + '{"a":' * 5000 + "1" + "}" * 5000 + "'",
        Q + "-hda " + "x" * MAX_TEXT,
        '[drive "d"]\nfile\n',
    ],
)
def test_what_cannot_be_read_is_an_error_with_a_reason(text: str) -> None:
    assert READING.claims(text[: 64 << 10])
    with pytest.raises(UsageError) as caught:
        READING.read_machines(text, "vm.sh")
    assert caught.value.why


@pytest.mark.parametrize(
    "text",
    ["", "<emulator>/usr/bin/qemu-system-x86_64</emulator>", "[PENDING]\nscsi0: a", "-hda a"],
)
def test_other_texts_are_not_claimed(text: str) -> None:
    assert not READING.claims(text)


def test_a_chain_without_end_and_a_very_long_one_are_cut() -> None:
    keys = "driver=raw,node-name=d," + "".join(f"{'file.' * n}driver=raw," for n in range(1, 300))
    assert brief(disk(Q + f"-blockdev {keys}" + BLK)).startswith("writeback") is False


@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=30), min_size=1))
def test_words_survive_the_shell(words: list[str]) -> None:
    if words[0]:
        assert split_commands(shlex.join(words)) == [words]


_LINE = """-drive -device -blockdev -object -snapshot file=a if=none id=d drive=d cache=none , ,,
= { } driver=qcow2 file.file.driver=raw backing=d node-name=d "a" ' \" \\ $x iothread,id=t [drive
{"driver":"file"} -readconfig -global a.b=c -machine none ; & 9999999"""
_WORDS = st.sampled_from([*_LINE.split(), "\n"])


@given(st.lists(_WORDS | st.text(max_size=8), max_size=25), st.sampled_from(["", " ", ","]))
def test_no_text_gives_a_traceback(words: list[str], glue: str) -> None:
    text = Q + " " + glue.join(words)
    with suppress(UsageError):
        for found in READING.read_machines(text, "x"):
            assert found.manager == "qemu"


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_argv_gives_a_traceback(words: list[str]) -> None:
    with suppress(DiskproofError):
        read_command_line(["qemu-system-x86_64", *words], "process 1")


def test_commas_and_bare_words() -> None:
    assert read_keys("drive", "file=a,,b,readonly") == {"file": "a,b", "readonly": "on"}
    assert read_keys("device", "nvme,serial=x") == {"driver": "nvme", "serial": "x"}
    assert read_keys("chardev", "socket,id=c,nowait") == {
        "backend": "socket",
        "id": "c",
        "wait": "off",
    }


def _pair(number: int) -> str:
    """A node that stands twice on the next one."""
    return f"-blockdev driver=raw,node-name=n{number},file=n{number + 1},backing=n{number + 1} "


HOSTILE = {
    "circle": "-blockdev driver=raw,node-name=d,file=d,backing=d" + BLK,
    "doubling": "".join(map(_pair, range(90))) + "-device nvme,drive=n0,serial=x",
    "long chain": "".join(map(_pair, range(1900))) + "-device nvme,drive=n0,serial=x",
    "deep inline": f"-blockdev node-name=d,{'file.' * 100_000}driver=raw" + BLK,
    "deep keys": "-blockdev node-name=d,"
    + ",".join(f"{'file.' * n}driver=raw" for n in range(500))
    + BLK,
    "many disks": "-blockdev driver=file,node-name=d,filename=a " + BLK * 1900,
    "many keys": "-drive " + "a=b," * 200_000,
    "many options": "-hda a " * 100_000,
    "braces": "{" * 500_000,
    "open braces": '{"a": ' * 150_000,
    "quotes": "\nqemu-system-x86_64 -hda 'a" * 30_000 + "'",
    "escapes": "\\" * 999_999,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_lines_end_soon(kind: str) -> None:
    began = time.process_time()
    with suppress(UsageError):
        READING.read_machines(Q + HOSTILE[kind], "x")
    assert time.process_time() - began < 5
