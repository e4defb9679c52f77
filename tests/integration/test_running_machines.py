"""Running QEMUs are found, with what was set and what is in force. Requires QEMU, root."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from diskproof.advice.dialect import Target
from diskproof.advice.qemu import DIALECT
from diskproof.advice.qemu_options import split_commands
from diskproof.errors import UsageError
from diskproof.host.machines import find_machines, qmp_socket, running
from diskproof.records.virtual_machines import Layer, Machine, MachineDisk
from diskproof.study.factors import CACHE_MODES
from support.patience import in_time
from support.qemus import make_image, start_still
from support.recording import make_places, needs_fuse, start_recording
from support.stopping import stop_whole


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host answers late, and by the bounds of use then not at all."""
    monkeypatch.setattr(qmp_socket, "SECONDS", 20.0)
    monkeypatch.setattr(running, "SECONDS", 60.0)


def machine_of(pid: int) -> Machine:
    (found,) = [machine for machine in find_machines().machines if machine.pid == pid]
    return found


def levels(layer: Layer | None) -> Mapping[str, str]:
    assert layer is not None
    return layer.levels


def rules(disk: MachineDisk) -> list[str]:
    return [remark.rule for remark in disk.remarks]


def lines(image: Path, **asked: str) -> list[str]:
    """The pasted lines of a disk, as words."""
    named = {key.replace("_", "-"): level for key, level in asked.items()}
    (words,) = split_commands(DIALECT.write(named, Target(str(image))).text)
    return words


CELLS = [
    {"format": "qcow2", "cache": "none", "aio": "native", "iothread": "on", "discard": "unmap"},
    {"format": "raw", "cache": "writeback", "aio": "io_uring", "bus": "virtio-scsi"},
    {"format": "raw", "cache": "writethrough", "aio": "threads", "bus": "ahci"},
    {"format": "qcow2", "cache": "directsync", "aio": "native", "bus": "nvme"},
    {"format": "qed", "cache": "unsafe", "bus": "ide", "detect_zeroes": "on"},
]


@pytest.mark.parametrize("asked", CELLS, ids=lambda asked: asked["cache"])
@pytest.mark.parametrize("free", [False, True], ids=["kernel", "qmp"])
def test_each_cache_mode_is_found_as_set(tmp_path: Path, asked: dict[str, str], free: bool) -> None:
    """By what the kernel shows, and by a monitor that is free."""
    image = make_image(tmp_path / "web.img", asked["format"])
    monitor = ["-qmp", "unix:free.qmp,server=on,wait=off"] if free else []
    with start_still(tmp_path, [*lines(image, **asked), *monitor], name="guest=shop") as qemu:
        machine = machine_of(qemu.process.pid)
        (disk,) = machine.disks
        wanted = {key.replace("_", "-"): level for key, level in asked.items()}
        assert (machine.name, machine.manager) == ("shop", "qemu")
        assert (disk.name, disk.image, disk.kind) == ("web", str(image), "file")
        assert wanted.items() <= levels(disk.configured).items()
        assert wanted.items() <= levels(disk.running).items()
        assert disk.running is not None
        assert ("QMP" in disk.running.source) == free
        assert DIALECT.read(disk.line, Target()) == levels(disk.configured)
    assert qemu.process.pid not in [found.pid for found in find_machines().machines]


def plug(qmp_execute: object, image: Path, direct: bool) -> None:
    assert callable(qmp_execute)
    node = {
        "driver": "qcow2",
        "node-name": "late",
        "cache": {"direct": direct, "no-flush": True},
        "file": {"driver": "file", "filename": str(image), "aio": "threads"},
    }
    qmp_execute("blockdev-add", node)
    qmp_execute("device_add", {"driver": "virtio-blk-pci", "drive": "late", "id": "late-disk"})


def test_a_disk_that_was_plugged_in_later_is_unknown_to_the_kernel(tmp_path: Path) -> None:
    first, late = make_image(tmp_path / "first"), make_image(tmp_path / "late")
    with start_still(tmp_path, lines(first, format="qcow2", cache="none")) as qemu:
        plug(qemu.qmp.execute, late, direct=True)
        one, other = machine_of(qemu.process.pid).disks
        assert (one.name, levels(one.running)["cache"]) == ("first", "none")
        assert (other.image, other.configured, levels(other.running)) == (str(late), None, {})
        assert other.facts == {"O_DIRECT": "on", "O_DSYNC": "off"}
        assert [(r.rule, r.effect) for r in other.remarks] == [("not-on-command-line", "unknown")]


def test_a_free_monitor_tells_of_a_disk_that_was_plugged_in_later(tmp_path: Path) -> None:
    first, late = make_image(tmp_path / "first"), make_image(tmp_path / "late")
    monitor = ["-chardev", "socket,path=free.qmp,server=on,wait=off,id=free"]
    args = [*lines(first, format="qcow2"), *monitor, "-mon", "chardev=free,mode=control"]
    with start_still(tmp_path, args) as qemu:
        plug(qemu.qmp.execute, late, direct=False)
        one, other = machine_of(qemu.process.pid).disks
        assert (one.name, other.name, other.image) == ("first", "late-disk", str(late))
        assert levels(other.running) == {
            "format": "qcow2",
            "cache": "unsafe",
            "detect-zeroes": "off",
            "iothread": "off",
            "bus": "virtio-blk",
        }
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "free.qmp"))
            client.settimeout(10)
            assert b"QMP" in client.recv(4096)
            assert [len(levels(d.running)) for d in machine_of(qemu.process.pid).disks][1] == 0
            client.sendall(b'{"execute":"qmp_capabilities"}\n')
            assert b"return" in client.recv(4096)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_a_disk_that_was_handed_over_as_descriptor(
    tmp_path: Path, direct: bool, free: bool
) -> None:
    image = make_image(tmp_path / "handed", "raw")
    handle = os.open(image, os.O_RDWR | (os.O_DIRECT if direct else 0))
    cache = "on" if direct else "off"
    node = f"driver=file,filename=/dev/fdset/7,node-name=n,cache.direct={cache}"
    args = ["-add-fd", f"fd={handle},set=7", "-blockdev", node]
    args += ["-device", "virtio-blk-pci,drive=n,id=d"]
    args += ["-qmp", "unix:free.qmp,server,nowait"] if free else []
    try:
        with start_still(tmp_path, args, fds=[handle]) as qemu:
            (disk,) = machine_of(qemu.process.pid).disks
            assert levels(disk.running)["cache"] == ("none" if direct else "writeback")
            assert levels(disk.running)["format"] == "raw"
            assert disk.facts["file"] == str(image)
    finally:
        os.close(handle)


def test_an_image_under_a_live_snapshot_is_not_the_disk_any_more(tmp_path: Path) -> None:
    first, overlay = make_image(tmp_path / "first"), tmp_path / "overlay"
    with start_still(tmp_path, lines(first, format="qcow2", cache="writeback")) as qemu:
        arguments = {"node-name": "first-format", "snapshot-file": str(overlay)}
        arguments |= {"format": "qcow2", "snapshot-node-name": "top"}
        qemu.qmp.execute("blockdev-snapshot-sync", arguments)
        old, new = machine_of(qemu.process.pid).disks
        assert (new.image, levels(new.running)) == (str(overlay), {})
        assert (old.image, old.running, rules(old)) == (str(first), None, ["image-replaced"])


def test_a_free_monitor_names_the_image_that_a_disk_is_on_by_now(tmp_path: Path) -> None:
    first, overlay = make_image(tmp_path / "first"), tmp_path / "overlay"
    args = [*lines(first, format="qcow2", cache="none"), "-qmp", "unix:m,server=on,wait=off"]
    with start_still(tmp_path, args) as qemu:
        arguments = {"node-name": "first-format", "snapshot-file": str(overlay)}
        arguments |= {"format": "qcow2", "snapshot-node-name": "top"}
        qemu.qmp.execute("blockdev-snapshot-sync", arguments)
        (disk,) = machine_of(qemu.process.pid).disks
        assert (disk.name, disk.image, rules(disk)) == ("first", str(overlay), ["image-replaced"])
        assert levels(disk.running)["cache"] == "none"
        assert "aio" not in levels(disk.running)


def test_a_cache_that_was_changed_is_not_taken_from_the_line(tmp_path: Path) -> None:
    first = make_image(tmp_path / "first")
    with start_still(tmp_path, lines(first, format="qcow2", cache="writeback")) as qemu:
        reopened = {
            "driver": "file",
            "node-name": "first-file",
            "filename": str(first),
            "cache": {"direct": True, "no-flush": False},
            "read-only": False,
            "discard": "ignore",
            "locking": "auto",
            "auto-read-only": False,
            "aio": "threads",
        }
        qemu.qmp.execute("blockdev-reopen", {"options": [reopened]})
        (disk,) = machine_of(qemu.process.pid).disks
        assert levels(disk.configured)["cache"] == "writeback"
        assert "cache" not in levels(disk.running)
        assert rules(disk) == ["changed-since-start"]
        qemu.qmp.execute("device_del", {"id": "first"})
        qemu.qmp.execute("query-status")


@pytest.mark.parametrize(
    "monitor",
    [
        "-chardev socket,id=charmonitor,path={0}/m.qmp,server=on,wait=off "
        "-mon chardev=charmonitor,mode=control",
        "-qmp unix:{0}/qemu-server/1.qmp,server=on,wait=off",
        "-qmp unix:{0}/libvirt/m.sock,server=on,wait=off",
        "-monitor unix:{0}/human,server=on,wait=off",
    ],
)
def test_a_managers_own_monitor_is_never_touched(tmp_path: Path, monitor: str) -> None:
    for folder in ("qemu-server", "libvirt"):
        (tmp_path / folder).mkdir()
    image = make_image(tmp_path / "disk")
    args = [*lines(image, format="qcow2", cache="none"), *monitor.format(tmp_path).split()]
    with start_still(tmp_path, args) as qemu:
        (disk,) = machine_of(qemu.process.pid).disks
        assert disk.running is not None
        assert "QMP" not in disk.running.source
        assert disk.running.levels["cache"] == "none"


def test_a_qemu_that_sees_other_files_than_we_do(tmp_path: Path) -> None:
    """As one in a container does: its disk lies on a tmpfs that only it has."""
    (tmp_path / "own").mkdir()
    script = 'mount -t tmpfs t own && truncate -s 16M own/disk && exec "$@"'
    args = lines(tmp_path / "own/disk", format="raw", cache="unsafe")
    around = ["unshare", "--mount", "sh", "-c", script, "sh"]
    with start_still(tmp_path, args, around=around) as qemu:
        machine = machine_of(qemu.process.pid)
        (disk,) = machine.disks
        assert list((tmp_path / "own").iterdir()) == []
        assert "container" in machine.notes[0]
        assert levels(disk.running)["cache"] == "unsafe"
        assert Path(disk.facts["seen at"]).stat().st_size == 16 << 20


def test_files_that_are_no_disks_are_none(tmp_path: Path) -> None:
    """Firmware's variables, memory, logs and a process number's file are open for writing too."""
    for name in ("vars", "firmware"):
        (tmp_path / name).write_bytes(bytes(256 << 10))
    args = ["-machine", "q35,memory-backend=ram", "-pidfile", "qemu.pid", "-serial", "file:log"]
    args += ["-object", "memory-backend-file,id=ram,size=64M,share=on,mem-path=memory"]
    args += ["-drive", "if=pflash,format=raw,unit=0,readonly=on,file=firmware"]
    args += ["-drive", "if=pflash,format=raw,unit=1,file=vars"]
    image = make_image(tmp_path / "disk", "raw")
    args += ["-drive", "file=disk,format=raw,if=virtio,snapshot=on"]
    with start_still(tmp_path, args) as qemu:
        (disk,) = machine_of(qemu.process.pid).disks
        assert (disk.name, disk.image) == ("virtio0", str(image))
        assert rules(disk) == ["snapshot"]
        assert levels(disk.running)["cache"] == "unsafe"


def test_a_configuration_file_is_read_where_qemu_has_it(tmp_path: Path) -> None:
    make_image(tmp_path / "disk", "raw")
    (tmp_path / "vm.conf").write_text(
        '[drive "d"]\n  file = "disk"\n  format = "raw"\n  if = "none"\n  cache = "none"\n'
        '[device "w"]\n  driver = "virtio-blk-pci"\n  drive = "d"\n'
    )
    with start_still(tmp_path, ["-readconfig", "vm.conf"]) as qemu:
        (disk,) = machine_of(qemu.process.pid).disks
        assert (disk.name, levels(disk.running)["cache"]) == ("w", "none")


def test_a_monitor_that_stays_silent_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is stopped does not answer, and its disks are told by the kernel."""
    monkeypatch.setattr(qmp_socket, "SECONDS", 3.0)
    with ExitStack() as stack:
        pids = []
        for number in range(3):
            folder = tmp_path / str(number)
            folder.mkdir()
            image = make_image(folder / "disk")
            args = [*lines(image, format="qcow2", cache="none")]
            args += ["-qmp", f"unix:{folder}/free.qmp,server=on,wait=off"]
            pids.append(stack.enter_context(start_still(folder, args)).process.pid)
        stop_whole(pids[0])
        try:
            found = {m.pid: m for m in find_machines().machines if m.pid in pids}
        finally:
            os.kill(pids[0], signal.SIGCONT)
        sources = [running.source for pid in pids if (running := found[pid].disks[0].running)]
        assert ["QMP" in source for source in sources] == [False, True, True]
        assert [levels(found[pid].disks[0].running)["cache"] for pid in pids] == ["none"] * 3


@needs_fuse
def test_a_file_system_that_does_not_answer_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SECONDS", 1.0)
    tmp_path.chmod(0o755)
    places = make_places(tmp_path)
    # What the kernel knows of a file without such a bit it tells for an hour without asking the
    # recorder: then whoever looks at all machines before us, as other tests do, has it answered.
    make_image(places.backing / "disk").chmod(0o2666)
    with (
        start_recording(places) as recording,
        start_still(tmp_path, lines(places.mount / "disk", format="qcow2")) as qemu,
    ):
        find_machines()
        stop_whole(recording.process.pid)
        try:
            found = in_time(4.0, find_machines)
        finally:
            os.kill(recording.process.pid, signal.SIGCONT)
        (machine,) = [one for one in found.machines if one.pid == qemu.process.pid]
        assert [sorted(disk.layers) for disk in machine.disks] == [["configured"]]
        (told,) = [text for text in found.obstacles if str(qemu.process.pid) in text]
        assert "did not answer within 1 s" in told


_AS_NOBODY = """
import os
from diskproof.host.machines import find_machines, running
find_machines()
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
found = find_machines()
print([(m.name, [sorted(d.layers) for d in m.disks]) for m in found.machines if m.name == "root's"])
print(*found.obstacles)
"""


def test_without_root_a_sentence_says_what_is_hidden(tmp_path: Path) -> None:
    image = make_image(tmp_path / "disk")
    with start_still(tmp_path, lines(image, format="qcow2"), name="root's"):
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    first, second = done.stdout.splitlines()
    assert first == "[(\"root's\", [['configured']])]"
    assert "root's" in second
    assert "as root more is found" in second


def test_five_modes_are_five() -> None:
    assert {cell["cache"] for cell in CELLS} == set(CACHE_MODES)
    with pytest.raises(UsageError):
        DIALECT.read("", Target())
