"""libvirt's words: written, read back, kept, refused; and machines read from XML of strangers."""

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice.dialect import Dialect, Target
from diskproof.advice.dialects import DIALECTS, READINGS
from diskproof.advice.libvirt_xml import DiskParts, iter_parts, parse_documents
from diskproof.records.virtual_machines import Machine, MachineDisk
from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME

FOLDER = Path(__file__).parent / "fixtures" / "machines" / "libvirt"
LIBVIRT, VIRT_INSTALL = DIALECTS["libvirt"], DIALECTS["virt-install"]
(READING,) = [reading for reading in READINGS if reading.name == "libvirt"]
SAID = ("format", "cache", "aio", "discard", "detect-zeroes", "iothread", "bus")
LEVELS = st.fixed_dictionaries(
    {"bus": st.sampled_from(("virtio-blk", "virtio-scsi", "ahci", "ide", "nvme"))},
    optional={
        **{name: st.sampled_from(FACTOR_BY_NAME[name].levels) for name in SAID if name != "bus"},
        "l2-cache-size": st.sampled_from(("64K", "1M", "32M", "1G")),
        "cluster_size": st.sampled_from(("4K", "64K", "2M")),
    },
)
DISK = """<disk type='file' device='disk' snapshot='no'>
  <driver name='qemu' type='qcow2' cache='unsafe' error_policy='stop' queues='4'/>
  <source file='/srv/a &amp; b&apos;s.qcow2'>
    <encryption format='luks'><secret type='passphrase' uuid='9f'/></encryption>
  </source>
  <target dev='vda' bus='virtio'/>
  <iotune><total_iops_sec>500</total_iops_sec></iotune>
  <serial>ROOT 1</serial>
  <boot order='1'/>
  <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
</disk>"""


def read_fixture(name: str) -> Machine:
    (machine,) = READING.read_machines((FOLDER / name).read_text(), name)
    return machine


def disk_of(name: str, disk: str) -> MachineDisk:
    return next(found for found in read_fixture(name).disks if found.name == disk)


@pytest.mark.parametrize("dialect", [LIBVIRT, VIRT_INSTALL], ids=lambda found: found.name)
@given(levels=LEVELS)
def test_what_is_written_is_read_back(dialect: Dialect, levels: dict[str, str]) -> None:
    target = Target(image="/srv/it's, a & <disk>.img", machine="vm 1")
    if obstacles := dialect.find_obstacles(levels, target):
        assert all(levels[each.factor] == each.level and each.reason for each in obstacles)
        mended = levels | {each.factor: each.nearest for each in obstacles}
        assert dialect.find_obstacles(mended, target) == ()
        with pytest.raises(ValueError, match=obstacles[0].factor):
            dialect.write(levels, target)
        return
    read = dict(dialect.read(dialect.write(levels, target).text, target))
    wanted = {name: level for name, level in levels.items() if name != "cluster_size"}
    if levels.get("format") != "qcow2":
        wanted.pop("l2-cache-size", None)
    if dialect is VIRT_INSTALL and levels.get("cluster_size", "64K") != "64K":
        wanted.pop("l2-cache-size", None)
        read.pop("l2-cache-size", None)
    assert {name: read[name] for name in wanted} == wanted


@given(levels=LEVELS)
def test_an_existing_disk_changes_only_where_it_must(levels: dict[str, str]) -> None:
    target = Target(disk="vda", existing=DISK)
    if LIBVIRT.find_obstacles(levels, target):
        return
    text = LIBVIRT.write(levels, target).text
    before, after = parts(DISK), parts(text)
    moved = levels["bus"] != "virtio-blk"
    gone = {"address"} if moved else set()
    assert [each.tag for each in after.disk] == [
        each.tag for each in before.disk if each.tag not in gone
    ]
    for tag in ("source", "iotune", "serial", "boot"):
        assert tree(after.disk.find(tag)) == tree(before.disk.find(tag))
    driver = after.disk.find("driver")
    assert driver is not None
    assert driver.get("error_policy") == "stop" and driver.get("queues") == "4"
    said = LIBVIRT.read(text, target)
    known = {**LIBVIRT.read(DISK, target), **levels}
    known.pop("cluster_size", None)
    if known["format"] != "qcow2":
        known.pop("l2-cache-size", None)
    assert said == known


def parts(text: str) -> DiskParts:
    (found,) = [
        each for root in parse_documents(f"<d>{text}</d>", "x") for each in iter_parts(root)
    ]
    return found


def tree(element: Element | None) -> object:
    """An element by its contents."""
    assert element is not None
    text = (element.text or "").strip()
    return element.tag, dict(element.items()), text, [tree(each) for each in element]


def test_native_needs_direct_io() -> None:
    """libvirt refuses to start such a machine (gotcha 1)."""
    for cache in CACHE_MODES:
        found = LIBVIRT.find_obstacles({"cache": cache, "aio": "native"}, Target())
        assert [each.nearest for each in found] == ([] if cache in DIRECT else ["threads"])
    existing = DISK.replace("cache='unsafe'", "cache='none' io='native'")
    (found_one,) = LIBVIRT.find_obstacles({"cache": "writeback"}, Target(existing=existing))
    assert "io='native' with cache=writeback" in found_one.reason


def test_write_through_is_the_devices_word_alone() -> None:
    """A guest may take it back (gotcha 4)."""
    for cache, mode in CACHE_MODES.items():
        for dialect in (LIBVIRT, VIRT_INSTALL):
            notes = " ".join(dialect.write({"cache": cache}, Target()).notes)
            assert ("CONFIG_WCE" in notes) == mode.write_through


def test_defaults_are_whose_they_are() -> None:
    """libvirt has none; virt-install sets three for a block device (gotcha 8)."""
    for block in (False, True):
        usual = LIBVIRT.defaults(Target(block=block))
        assert (usual["cache"], usual["aio"], usual["discard"]) == (
            "writeback",
            "threads",
            "ignore",
        )
    usual = VIRT_INSTALL.defaults(Target(block=True))
    assert (usual["cache"], usual["aio"], usual["discard"]) == ("none", "native", "unmap")
    assert VIRT_INSTALL.defaults(Target())["cache"] == "writeback"


def test_max_size_is_of_all_metadata_caches() -> None:
    """The L2 cache asked for, and four clusters for reference counts (gotcha 9)."""
    levels = {"format": "qcow2", "l2-cache-size": "32M"}
    paste = LIBVIRT.write(levels, Target())
    assert f"<max_size unit='bytes'>{(32 << 20) + (256 << 10)}</max_size>" in paste.text
    assert any("all metadata caches" in note for note in paste.notes)
    paste = LIBVIRT.write({**levels, "cluster_size": "2M"}, Target())
    assert f"<max_size unit='bytes'>{40 << 20}</max_size>" in paste.text
    found = disk_of("chain.xml", "vda")
    assert found.running is not None
    assert found.running.levels["l2-cache-size"] == "16128K"


def test_librbds_cache_is_told_from_the_page_cache() -> None:
    """The reader says that it is RBD, so that no verdict of a file is taken for it (gotcha 10)."""
    found = disk_of("nova-rbd.xml", "vda")
    assert (found.kind, found.facts["driver"]) == ("network", "rbd")
    assert found.image == "rbd:vms/f2a9a5a4-0d0e-4c62-9dd5-5b6a3c1c4f66_disk"
    assert found.configured is not None and "aio" not in found.configured.levels


def test_a_paste_says_where_and_when() -> None:
    target = Target(image="/srv/a b.img", machine="vm 1", disk="vdb")
    paste = LIBVIRT.write({"format": "qcow2", "cluster_size": "128K", "iothread": "on"}, target)
    assert paste.where == "virsh edit 'vm 1'"
    assert "started the next time" in paste.takes_effect
    assert paste.create == "qemu-img create -f qcow2 -o cluster_size=128K '/srv/a b.img' SIZE"
    assert "<iothreads>1</iothreads>" in paste.text
    assert "<target dev='vdb' bus='virtio'/>" in paste.text
    assert "<source file='/srv/a b.img'/>" in paste.text
    block = LIBVIRT.write({"format": "raw"}, Target(image="/dev/vg/a", block=True))
    assert "<disk type='block' device='disk'>" in block.text
    assert "<source dev='/dev/vg/a'/>" in block.text
    assert block.create == ""


def test_the_image_that_is_made_is_the_one_that_is_said() -> None:
    """libvirt takes a disk of whose format nothing is said for raw."""
    for target in (Target(), Target(image="/dev/vg/a", block=True)):
        for dialect in (LIBVIRT, VIRT_INSTALL):
            paste = dialect.write({"cache": "none"}, target)
            form = dialect.read(paste.text, target)["format"]
            assert form == ("raw" if target.block else "qcow2")
            assert target.block or f"-f {form} " in paste.create


def test_another_image_from_the_next_start_on_is_told() -> None:
    text = (FOLDER / "hot-plugged.xml").read_text()
    changed = "/srv/vm/other.qcow2'/>".join(text.rsplit("/srv/vm/build.qcow2'/>", 1))
    (machine,) = READING.read_machines(changed, "x")
    (remark,) = machine.disks[0].remarks
    assert (remark.rule, remark.layer) == ("pending-change", "pending")
    assert "/srv/vm/build.qcow2" in remark.what and "/srv/vm/other.qcow2" in remark.what


def test_a_disk_moves_to_scsi_with_its_thread() -> None:
    existing = DISK.replace("cache='unsafe'", "iothread='2'")
    paste = LIBVIRT.write({"bus": "virtio-scsi"}, Target(existing=existing))
    found = parts(paste.text)
    assert found.bus == "scsi" and found.name == "sda"
    assert found.controller is not None and found.controller.get("model") == "virtio-scsi"
    assert LIBVIRT.read(paste.text, Target())["iothread"] == "on"
    assert any("vda to sda" in note for note in paste.notes)
