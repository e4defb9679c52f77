"""libvirt's machines, read from XML of strangers."""

import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice.dialect import Dialect, Target
from diskproof.advice.dialects import DIALECTS, READINGS, require_dialect
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Machine, MachineDisk

FOLDER = Path(__file__).parent / "fixtures" / "machines" / "libvirt"
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text())
LIBVIRT, VIRT_INSTALL = DIALECTS["libvirt"], DIALECTS["virt-install"]
(READING,) = [reading for reading in READINGS if reading.name == "libvirt"]
OURS = {
    *("hot-plugged", "snapshot-section", "iothread-ignored", "commandline-override"),
    *("temporary-writes", "werror-ignore"),
}
"""What the reader itself tells; the rest follows from levels and facts."""


def read_fixture(name: str) -> Machine:
    (machine,) = READING.read_machines((FOLDER / name).read_text(), name)
    return machine


def disk_of(name: str, disk: str) -> MachineDisk:
    return next(found for found in read_fixture(name).disks if found.name == disk)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_fixtures_are_read(name: str) -> None:
    machine = read_fixture(name)
    assert machine.manager == "libvirt" and machine.name
    text = (FOLDER / name).read_text()
    assert [each.name for each in READINGS if each.claims(text)] == ["libvirt"]
    assert {disk.name for disk in machine.disks} == set(EXPECTED[name])
    for disk in machine.disks:
        told = {remark.rule for remark in disk.remarks}
        wanted = set(EXPECTED[name][disk.name])
        assert told == wanted & OURS
        assert disk.read_only == ("read-only" in wanted)
        assert (disk.pending is not None) == ("pending-change" in wanted)
        caches = {layer.levels.get("cache") for layer in disk.layers.values()}
        assert None not in caches
        assert disk.read_only or ("unsafe" in caches) == ("no-flush" in wanted)
        # What is found can be written again, and says the same.
        configured = disk.pending or disk.configured or disk.running
        assert configured is not None
        read = LIBVIRT.read(disk.line, Target(disk=disk.name))
        assert read == {k: v for k, v in configured.levels.items() if k not in configured.assumed}


def test_every_fixture_is_expected() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in FOLDER.glob("*.xml"))
    assert len(EXPECTED) >= 14
    assert sum(any(faults for faults in disks.values()) for disks in EXPECTED.values()) >= 7


def test_what_is_not_written_is_told_from_what_is() -> None:
    disk = disk_of("vagrant-default.xml", "vda")
    assert disk.configured is not None
    assert disk.configured.levels["cache"] == "writeback"
    assert disk.configured.assumed == {"cache", "aio", "discard", "detect-zeroes"}
    shared = disk_of("cluster-shared.xml", "sdb")
    assert shared.configured is not None
    assert shared.configured.levels["cache"] == "none" and "cache" in shared.configured.assumed
    text = (FOLDER / "vagrant-default.xml").read_text().replace("'kvm'", "'xen'")
    (xen,) = READING.read_machines(text, "xen.xml")
    assert xen.disks[0].configured is not None
    assert "cache" not in xen.disks[0].configured.levels and "not run by QEMU" in xen.notes[0]


def test_images_of_all_kinds() -> None:
    images = {disk.name: (disk.kind, disk.image) for disk in read_fixture("network.xml").disks}
    assert images == {
        "vda": ("network", "nbd://storage.example:10809/root"),
        "vdb": ("network", "iscsi://storage.example:3260/iqn.2003-01.org.example:data/0"),
        "vdc": ("network", "nbd+unix:///?socket=/run/nbd.sock"),
        "sda": ("network", "https://mirror.example:443/iso/netinst.iso"),
    }
    assert disk_of("cockpit-files.xml", "vda").image == "images/files.qcow2"
    chain = disk_of("chain.xml", "vda")
    assert chain.facts["chain"] == "2"
    assert chain.facts["base"] == "/var/lib/libvirt/images/desktop.qcow2"
    assert read_fixture("chain.xml").pid == 4711


def test_overrides_concern_the_disks_that_they_name() -> None:
    assert disk_of("commandline-harmless.xml", "vda").facts["config-wce"] == "off"
    text = (FOLDER / "commandline.xml").read_text()
    for argument, hit in (
        ("'-global'/><qemu:arg value='virtio-blk-pci.write-cache=off'/>", {"vda", "vdb"}),
        ("'-global'/><qemu:arg value='ide-hd.ver=1'/>", set()),
        ("'-snapshot'/>", {"vda", "vdb"}),
        ("'-set'/><qemu:arg value='device.virtio-disk1.rotation_rate=1'/>", set()),
        ("'-set'/><qemu:arg value='device.virtio-disk1.werror=ignore'/>", {"vdb"}),
    ):
        changed = text.replace("device.virtio-disk0.write-cache=off", "device.video0.x=1").replace(
            "</qemu:commandline>", f"<qemu:arg value={argument}</qemu:commandline>"
        )
        (machine,) = READING.read_machines(changed, "x")
        assert {disk.name for disk in machine.disks if disk.remarks} == hit
        assert all(r.effect == "unknown" for disk in machine.disks for r in disk.remarks)
    added = text.replace("'-fw_cfg'", "'-drive'").replace("opt/ovmf/", "file=/x,cache=unsafe,a=")
    (machine,) = READING.read_machines(added, "x")
    assert "behind libvirt's back" in machine.notes[0] and "cache=unsafe" in machine.notes[0]


def test_only_libvirts_xml_is_claimed() -> None:
    for text in (
        "",
        "<",
        "<!--",
        "<?xml",
        "scsi0: local:1",
        "{}",
        "<network/>",
        "<!-- <domain> -->",
    ):
        assert not READING.claims(text)
    for text in (
        "<domain/>",
        "<!-- a --><?xml?>\n<domain type='kvm'>",
        "<!DOCTYPE domain [",
        "<domstatus ",
    ):
        assert READING.claims(text)


DISKS = "".join(
    f"<disk type='file'><driver iothread='7'/><target dev='vd{n}' bus='virtio'/></disk>"
    for n in range(500)
)
NAMESPACE = "xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'"
GLOBAL = "<q:arg value='-global'/><q:arg value='ide-hd.x=1'/>"
HEAVY = {
    "disks": f"<domain type='kvm'><devices>{DISKS * 60}</devices></domain>",
    "machines": "".join(
        f"<domain type='kvm'><name>m{n}</name><iothreads>900</iothreads>"
        f"<devices>{DISKS}</devices></domain>"
        for n in range(16)
    ),
    "options": "".join(
        f"<domain type='kvm' {NAMESPACE}><name>m{n}</name><devices>{DISKS}</devices>"
        f"<q:commandline>{GLOBAL * 125}</q:commandline></domain>"
        for n in range(16)
    ),
    "braces": f"<domain type='kvm' {NAMESPACE}><devices>{DISKS}</devices><q:commandline>"
    f"<q:arg value='-device'/><q:arg value='{'{' * 3_000_000}'/></q:commandline></domain>",
    "chain": "<domain><devices><disk><target dev='vda'/>"
    + "<backingStore><source file='/a'/>" * 280
    + "</backingStore>" * 280
    + "</disk></devices></domain>",
    "threads": "<domain><iothreadids>" + "<iothread id='9'/>" * 90_000 + "</iothreadids></domain>",
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_xml_ends_in_time(name: str) -> None:
    began = time.process_time()
    with suppress(UsageError):
        for machine in READING.read_machines(HEAVY[name], "x.xml"):
            assert all(len(disk.remarks) < 4 for disk in machine.disks)
    assert time.process_time() - began < 5


BOMB = "<!DOCTYPE domain [<!ENTITY a 'x'>{}]><domain>&z;</domain>".format(
    "".join(f"<!ENTITY {b} '{f'&{a};' * 50}'>" for a, b in zip("abcdefgh", "bcdefghz", strict=True))
)
HOSTILE = {
    "bomb": BOMB,
    "external": "<!DOCTYPE domain SYSTEM 'file:///etc/passwd'><domain/>",
    "deep": "<domain>" + "<a>" * 200_000,
    "closed deep": "<domain>" + "<a>" * 5000 + "</a>" * 5000 + "</domain>",
    "large": f"<domain>{'<a/>' * (10 << 18)}</domain>",
    "many": f"<domain>{'<a/>' * 900_000}</domain>",
    "attributes": "<domain " + " ".join(f"a{n}=''" for n in range(200_000)) + "/>",
    "comments": "<!--" * 900_000,
    "prologs": "<?xml " * 600_000,
    "empty": "",
    "nothing": "<!-- none -->",
    "other": "<network><name>default</name></network>",
    "no domain": "<domstatus state='running'/>",
    "nul": "<domain>\0</domain>",
    "half a character": "<domain>\ud800</domain>",
    "escaped": "</documents><documents>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused_in_time(name: str) -> None:
    began = time.process_time()
    READING.claims(HOSTILE[name][: 64 << 10])
    if name == "attributes":
        (machine,) = READING.read_machines(HOSTILE[name], "x.xml")
        assert machine.disks == ()
    else:
        with pytest.raises(UsageError, match="x.xml"):
            READING.read_machines(HOSTILE[name], "x.xml")
    assert time.process_time() - began < 5


@given(data=st.data())
def test_damaged_files_are_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(EXPECTED)))
    text = (FOLDER / name).read_text()
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 40))
    put = data.draw(
        st.text(max_size=8) | st.sampled_from(("<disk>", "'", "&lt;", "]]>", "9" * 5000))
    )
    damaged = text[:at] + put + text[at + cut :] if data.draw(st.booleans()) else text[:at]
    READING.claims(damaged)
    try:
        machines = READING.read_machines(damaged, "x.xml")
    except UsageError:
        return
    for machine in machines:
        for disk in machine.disks:
            assert disk.line
            target = Target(machine=machine.name, disk=disk.name, existing=disk.line)
            if not LIBVIRT.find_obstacles({"cache": "none"}, target):
                text = LIBVIRT.write({"cache": "none"}, target).text
                assert LIBVIRT.read(text, target)["cache"] == "none"


@given(text=st.text(max_size=200))
@pytest.mark.parametrize("dialect", [LIBVIRT, VIRT_INSTALL], ids=lambda found: found.name)
def test_any_line_is_read_or_refused(dialect: Dialect, text: str) -> None:
    for line in (text, f"--disk {text}", f"<disk>{text}</disk>"):
        with suppress(UsageError):
            assert isinstance(dialect.read(line, Target()), dict)


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(UsageError, match="no dialect"):
        require_dialect("vmware")
