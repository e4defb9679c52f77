"""What libvirt itself makes of our lines: its schema, its refusals, and the QEMUs that it starts.

Requires libvirtd, virsh, virt-install, virt-xml-validate, qemu-system-x86_64; a session libvirtd
of the test's own runs without privileges.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import DIALECTS
from diskproof.host.machines.libvirt import find_at, find_live_socket, find_sessions, session
from diskproof.host.machines.running import find as find_running
from diskproof.process.start import find_tool
from diskproof.records.virtual_machines import Machine
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME
from support.libvirt_sessions import (
    EMULATOR,
    MISSING,
    LibvirtSession,
    domain,
    levels_of,
    read_command_line,
    start_libvirt,
)
from support.patience import in_time

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}")
LIBVIRT = DIALECTS["libvirt"]
VIRT_INSTALL = DIALECTS["virt-install"]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "machines" / "libvirt"
FACTORS = ("format", "cache", "aio", "discard", "detect-zeroes", "iothread", "bus")
OF_THE_IMAGE = ("format", "lazy_refcounts", "preallocation")
IOTHREADS = re.compile(r"<!--.*?-->|<iothreads>\d+</iothreads>")
Cell = dict[str, str]


@pytest.fixture(scope="module")
def libvirt() -> Iterator[LibvirtSession]:
    with start_libvirt() as session:
        yield session


def cells() -> Iterator[Cell]:
    """Every combination of levels that libvirt can say."""
    kinds = [FACTOR_BY_NAME[name].levels for name in FACTORS]
    for levels in product(*kinds):
        cell = dict(zip(FACTORS, levels, strict=True))
        if cell["format"] != "qed" and not LIBVIRT.find_obstacles(cell, Target()):
            yield cell


def letters(number: int) -> str:
    """``a`` for 0, ``aa`` for 26, as disks are counted."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("a") + digit) + text
    return text


def write_device(cell: Cell, image: str, number: int) -> str:
    """The lines of one disk of many: its own name, and on SCSI a controller of its own (the schema
    knows two digits)."""
    prefix = {"virtio-blk": "vd", "virtio-scsi": "sd", "ahci": "sd", "ide": "hd"}[cell["bus"]]
    target = Target(image=image, disk=f"{prefix}{letters(number)}")
    text = IOTHREADS.sub("", LIBVIRT.write(cell, target).text)
    if cell["bus"] == "virtio-scsi":
        index = number % 100
        address = f"<address type='drive' controller='{index}' bus='0' target='0' unit='0'/></disk>"
        text = text.replace("index='0'", f"index='{index}'").replace("</disk>", address)
    return text


def validate(path: str, kind: str = "domain") -> None:
    done = subprocess.run(["virt-xml-validate", path, kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_cell_is_valid_by_libvirts_schema(tmp_path: Path) -> None:
    found = list(cells())
    parts = [write_device(cell, f"/srv/{n}.img", n) for n, cell in enumerate(found)]
    path = tmp_path / "all.xml"
    path.write_text(domain("all", *parts, beside="<iothreads>1</iothreads>"))
    assert len(found) > 300
    validate(str(path))


Q35 = [
    {"cache": "none", "aio": "native", "discard": "unmap", "detect-zeroes": "unmap"},
    {"cache": "writeback", "aio": "threads", "discard": "unmap", "detect-zeroes": "on"},
    {"cache": "writethrough", "aio": "io_uring", "discard": "ignore", "detect-zeroes": "on"},
    {"cache": "directsync", "aio": "native", "discard": "ignore", "detect-zeroes": "off"},
    {"cache": "unsafe", "aio": "threads", "discard": "unmap", "detect-zeroes": "off"},
]
"""Each level of each factor at least once; the buses are those of the test."""


def disks(bus: str, iothread: str) -> list[Cell]:
    forms = ("raw", "qcow2")
    return [
        {**cell, "format": forms[n % 2], "bus": bus, "iothread": iothread}
        for n, cell in enumerate(Q35)
    ]


@pytest.mark.parametrize(
    ("board", "wanted"),
    [
        (
            "q35",
            [
                *disks("virtio-blk", "off"),
                *disks("virtio-scsi", "on"),
                disks("virtio-blk", "on")[0],
                disks("virtio-scsi", "off")[2],
                *disks("ahci", "off"),
            ],
        ),
        ("pc", disks("ide", "off")[:4]),
    ],
)
def test_libvirts_qemu_runs_at_what_was_asked(
    libvirt: LibvirtSession, board: str, wanted: list[Cell]
) -> None:
    images = [libvirt.image(f"{board}{n}", cell["format"]) for n, cell in enumerate(wanted)]
    numbers = [n if board == "q35" else n for n in range(len(wanted))]
    parts = [
        write_device(cell, image, n) for cell, image, n in zip(wanted, images, numbers, strict=True)
    ]
    text = domain(board, *parts, machine=board, beside="<iothreads>1</iothreads>")
    path = libvirt.write("machine.xml", text)
    libvirt.virsh("define", "--validate", path)
    libvirt.virsh("start", board)
    try:
        pid = libvirt.pid(board)
        options = read_command_line(pid)
        assert [levels_of(options, image, board) for image in images] == wanted
        (machine,) = find(libvirt, board)
        assert machine.pid == pid
        assert machine.id in Path(f"/proc/{pid}/cmdline").read_text()
        (seen,) = [each for each in find_running() if isinstance(each, Machine) and each.pid == pid]
        assert (seen.id, seen.manager) == (machine.id, "libvirt")
        by_image = {disk.image: disk for disk in machine.disks}
        of_qemu = {disk.image: disk.running for disk in seen.disks}
        for image, cell in zip(images, wanted, strict=True):
            running, configured = by_image[image].running, by_image[image].configured
            assert running is not None and configured is not None
            assert running.levels == configured.levels == cell
            assert by_image[image].pending is None and not by_image[image].remarks
            found = of_qemu[image]
            assert found is not None
            assert {name: found.levels.get(name) for name in cell} == cell
    finally:
        libvirt.virsh("destroy", board)
        libvirt.virsh("undefine", board)


def find(libvirt: LibvirtSession, name: str) -> list[Machine]:
    with pytest.MonkeyPatch.context() as patch:  # on a busy host
        patch.setattr("diskproof.host.machines.libvirt._ANSWER_SECONDS", 60.0)
        found = list(find_at(libvirt.place))
    assert [item for item in found if isinstance(item, str)] == []
    return [item for item in found if isinstance(item, Machine) and item.name == name]


def test_a_disk_of_which_nothing_is_said_runs_at_the_defaults(libvirt: LibvirtSession) -> None:
    """What is taken for default is what QEMU then does, of a shared disk and a plain one."""
    names = ("vda", "vdb", "vdc")
    images = [libvirt.image(f"default-{name}") for name in names]
    extra = ("", "<shareable/>", "<driver name='qemu' type='raw' detect_zeroes='unmap'/>")
    parts = [
        f"<disk type='file'><source file='{image}'/><target dev='{name}'/>{more}</disk>"
        for image, name, more in zip(images, names, extra, strict=True)
    ]
    libvirt.virsh("define", libvirt.write("default.xml", domain("plain", *parts)))
    libvirt.virsh("start", "plain")
    try:
        options = read_command_line(libvirt.pid("plain"))
        (machine,) = find(libvirt, "plain")
        for disk, image in zip(machine.disks, images, strict=True):
            assert disk.running is not None
            assert disk.pending is None
            assert disk.running.levels == levels_of(options, image, "q35")
        plain = machine.disks[0].running
        assert plain is not None
        assert {**LIBVIRT.defaults(Target()), "bus": "virtio-blk"} == plain.levels
    finally:
        libvirt.virsh("destroy", "plain")
        libvirt.virsh("undefine", "plain")


@pytest.mark.parametrize(
    ("cell", "changed", "words"),
    [
        (
            {"cache": "writeback", "aio": "threads"},
            ("io='threads'", "io='native'"),
            "io='native' needs either no disk cache or directsync",
        ),
        (
            {"bus": "ahci", "cache": "none"},
            ("cache=", "iothread='1' cache="),
            "IOThreads not available for bus sata",
        ),
        (
            {"bus": "virtio-blk", "iothread": "on", "cache": "none"},
            ("iothread='1'", "iothread='5'"),
            "iothread '5' not defined",
        ),
    ],
)
def test_what_is_an_obstacle_libvirt_refuses(
    libvirt: LibvirtSession, cell: Cell, changed: tuple[str, str], words: str
) -> None:
    text = LIBVIRT.write({**cell, "format": "raw"}, Target(image="/srv/x")).text
    wrong = IOTHREADS.sub("", text).replace(*changed)
    machine = domain("refused", wrong, beside="<iothreads>2</iothreads>")
    assert words in libvirt.virsh("define", libvirt.write("no.xml", machine), check=False)


def test_pending_and_hot_plugged_are_told_by_the_daemon_and_by_its_files() -> None:
    with start_libvirt() as libvirt:
        image, second = libvirt.image("a"), libvirt.image("b")
        told = {"format": "raw", "cache": "unsafe", "bus": "virtio-blk"}
        first = LIBVIRT.write(told, Target(image=image)).text
        port = "<controller type='pci' model='pcie-root'/>" + SPARE_PORT * 4
        libvirt.virsh("define", libvirt.write("m.xml", domain("web 1", first, port)))
        libvirt.virsh("start", "web 1")
        (machine,) = find(libvirt, "web 1")
        (disk,) = machine.disks
        assert disk.pending is None
        mended = LIBVIRT.write(
            {"cache": "none", "aio": "native"}, Target(machine="web 1", existing=disk.line)
        )
        assert "virsh update-device 'web 1' FILE --config" in " ".join(mended.notes)
        change = libvirt.write("change.xml", mended.text)
        libvirt.virsh("update-device", "web 1", change, "--config")
        plug = LIBVIRT.write({**told, "cache": "none"}, Target(image=second, disk="vdb")).text
        libvirt.virsh("attach-device", "web 1", libvirt.write("plug.xml", plug), "--live")

        by_daemon = find(libvirt, "web 1")
        assert find_live_socket(libvirt.place) is not None
        libvirt.daemon.kill()
        libvirt.daemon.wait(30)
        by_files = find(libvirt, "web 1")
        assert find_live_socket(libvirt.place) is None
        for found in (by_daemon, by_files):
            (machine,) = found
            assert machine.pid == libvirt.pid("web 1")
            changed, plugged = machine.disks
            assert changed.configured is not None and changed.configured.levels["cache"] == "unsafe"
            assert changed.running is not None and changed.running.levels["cache"] == "unsafe"
            assert changed.pending is not None
            assert changed.pending.levels["cache"] == "none"
            assert changed.pending.levels["aio"] == "native"
            assert plugged.configured is None and plugged.running is not None
            assert plugged.running.levels["cache"] == "none"
            assert [remark.rule for remark in plugged.remarks] == ["hot-plugged"]


def test_twenty_machines_are_found_in_time(libvirt: LibvirtSession) -> None:
    text = LIBVIRT.write({"cache": "none"}, Target(image="/srv/x.qcow2")).text
    names = [f"many{number}" for number in range(20)]
    paths = [libvirt.write(f"{name}.xml", domain(name, text)) for name in names]
    libvirt.virsh("; ".join(f"define {path}" for path in paths))
    try:
        began = sum(os.times()[:4])  # ours and our children's, of a processor
        found = {item.name for item in find_at(libvirt.place) if isinstance(item, Machine)}
        assert sum(os.times()[:4]) - began < 2
        assert found >= set(names)
    finally:
        libvirt.virsh("; ".join(f"undefine {name}" for name in names))


def test_a_daemon_that_hangs_is_given_up_and_its_files_are_read(tmp_path: Path) -> None:
    place = session(
        "qemu:///session", tmp_path / "config", Path(tempfile.mkdtemp("", "dp-lv-", "/tmp"))
    )
    place.status.mkdir(parents=True)
    place.configured.mkdir(parents=True)
    fixture = FIXTURES / "virt-manager-web.xml"
    (place.configured / "web.xml").write_text(fixture.read_text())
    program = tmp_path / "libvirtd"
    shutil.copy(find_tool("sleep") or "sleep", program)
    try:
        with socket.socket(socket.AF_UNIX) as server, subprocess.Popen([program, "60"]) as child:
            server.bind(str(place.sockets[1]))
            server.listen()
            place.pid_files[1].write_text(str(child.pid))
            while Path(f"/proc/{child.pid}/comm").read_text() != "libvirtd\n":
                time.sleep(0.01)  # the kernel names a program a moment after it was started
            sentence, machine = in_time(5, lambda: list(find_at(place)))
            child.kill()
    finally:
        shutil.rmtree(place.status.parents[2])
    assert isinstance(sentence, str) and "did not answer (virsh did not end" in sentence
    assert isinstance(machine, Machine) and machine.name == "web"


def test_looking_starts_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir(mode=0o700)
    own = next(find_sessions())
    assert own.status.is_relative_to(tmp_path) and own.configured.is_relative_to(tmp_path)
    assert list(find_at(own)) == []
    assert list((tmp_path / "run").iterdir()) == []
    assert not (tmp_path / "config").exists()


SPARE_PORT = "<controller type='pci' model='pcie-root-port'/>"
VIRT_INSTALL_CELLS = [
    *({**disks("virtio-blk", "on")[n], "l2-cache-size": "4M"} for n in (1, 3)),
    disks("virtio-scsi", "on")[0],
    disks("virtio-blk", "off")[2],
    disks("ahci", "off")[4],
]


@pytest.mark.parametrize("cell", VIRT_INSTALL_CELLS)
def test_virt_install_makes_the_same_disk(libvirt: LibvirtSession, cell: Cell) -> None:
    image = libvirt.image(f"vi,{cell['cache']}", cell["format"])
    paste = VIRT_INSTALL.write(cell, Target(image=image))
    words = "--name x --memory 64 --osinfo detect=off,require=off --virt-type qemu --arch x86_64"
    done = libvirt.run(
        *("virt-install", "--connect", libvirt.uri, *words.split(), "--import"),
        *("--machine", "q35", "--print-xml", "--dry-run", "--boot", f"emulator={EMULATOR}"),
        *shlex.split(paste.text),
    )
    assert done.returncode == 0, done.stderr
    validate(libvirt.write("install.xml", done.stdout))
    assert LIBVIRT.read(done.stdout, Target()) == cell
    assert VIRT_INSTALL.read(paste.text, Target()) == cell
    (source,) = re.findall(r'<source file="([^"]*)"', done.stdout)
    assert source == image


@pytest.mark.parametrize("block", [False, True])
def test_virt_installs_own_defaults(libvirt: LibvirtSession, block: bool) -> None:
    device = next((str(path) for path in Path("/dev").glob("[vs]d[a-z]") if path.exists()), "")
    if block and not device:
        pytest.skip("this host has no disk to name")
    disk = f"path={device}" if block else f"path={libvirt.folder}/home/new.qcow2,size=1"
    words = "--name x --memory 64 --osinfo linux2022 --virt-type qemu --arch x86_64 --import"
    done = libvirt.run(
        *("virt-install", "--connect", libvirt.uri, *words.split(), "--print-xml", "--dry-run"),
        *("--disk", disk, "--check", "all=off"),
    )
    assert done.returncode == 0, done.stderr
    given = VIRT_INSTALL.defaults(Target(block=block))
    wanted = {factor: given[factor] for factor in given if factor not in OF_THE_IMAGE[1:]}
    said = LIBVIRT.read(done.stdout, Target())
    assert {**LIBVIRT.defaults(Target()), **said} == wanted


def test_the_image_that_virt_install_makes(libvirt: LibvirtSession) -> None:
    words = "--name made --memory 64 --osinfo linux2022 --virt-type qemu --import --disk size=1"
    quiet = "--noautoconsole --graphics none --network none --check all=off"
    done = libvirt.run("virt-install", "--connect", libvirt.uri, *f"{words} {quiet}".split())
    assert done.returncode == 0, done.stderr
    xml = libvirt.virsh("dumpxml", "made")
    libvirt.virsh("destroy", "made")
    (path,) = re.findall(r"<source file='([^']*)'", xml)
    asked = ["qemu-img", "info", "--output=json", path]
    made = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    found = {"format": made["format"]}
    found["lazy_refcounts"] = "on" if made["format-specific"]["data"]["lazy-refcounts"] else "off"
    asked = ["qemu-img", "map", "--output=json", path]
    pieces = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    reserved = all("offset" in piece for piece in pieces)
    # Clusters have their places, and next to nothing of them is written.
    found["preallocation"] = "metadata" if reserved and made["actual-size"] < 1 << 20 else "?"
    given = VIRT_INSTALL.defaults(Target())
    assert found == {factor: given[factor] for factor in OF_THE_IMAGE}
    assert "discard='unmap'" in xml and "bus='virtio'" in xml and "cache=" not in xml


def test_every_cache_mode_was_started() -> None:
    assert {cell["cache"] for cell in Q35} == set(CACHE_MODES)
