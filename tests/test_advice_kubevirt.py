"""KubeVirt's words for a disk, both ways, and what its objects tell."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice import kubevirt, kubevirt_objects
from diskproof.advice.dialect import Target
from diskproof.advice.documents import MAX_DISKS, dump_yaml, load_yaml
from diskproof.advice.kubevirt import DIALECT
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import MachineDisk
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME
from support.machine_fixtures import MACHINES, read_fixture

FACTORS = ("cache", "aio", "discard", "detect-zeroes", "iothread", "bus")
CELLS = [
    dict(zip(FACTORS, levels, strict=True))
    for levels in itertools.product(*(FACTOR_BY_NAME[name].levels for name in FACTORS))
]
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
OTHERS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "bootOrder": st.integers(1, 9),
        "serial": st.from_regex(r"[A-Za-z0-9_.+-]{1,12}", fullmatch=True),
        "tag": st.text(max_size=8),
        "errorPolicy": st.sampled_from(["stop", "report"]),
        "blockSize": st.just({"custom": {"logical": 4096, "physical": 4096}}),
    },
)


def reachable() -> list[dict[str, str]]:
    return [cell for cell in CELLS if not DIALECT.find_obstacles(cell, Target())]


def test_every_reachable_cell_comes_back_from_its_line() -> None:
    cells = reachable()
    for cell in cells:
        assert DIALECT.read(DIALECT.write(cell, Target(disk="root")).text, Target()) == cell
    # 5 caches on 3 buses with threads, the 2 direct ones with native too; virtio with a thread
    assert len(cells) == (5 + 2) * 3 + (5 + 2)


def test_every_other_cell_is_refused_with_a_reason_and_the_nearest_is_sayable() -> None:
    for cell in CELLS:
        obstacles = DIALECT.find_obstacles(cell, Target())
        if not obstacles:
            continue
        with pytest.raises(ValueError, match=obstacles[0].factor):
            DIALECT.write(cell, Target())
        nearest = {**cell, **{item.factor: item.nearest for item in obstacles}}
        assert not DIALECT.find_obstacles(nearest, Target()), (cell, nearest)
        assert all(item.reason for item in obstacles)


@given(st.sampled_from(reachable()), OTHERS)
def test_what_else_stood_in_the_item_stays(cell: dict[str, str], others: dict[str, object]) -> None:
    existing = {**others, "cache": "writeback", "io": "threads", "disk": {"pciAddress": "0:1:2.0"}}
    target = Target(existing=dump_yaml(existing))
    written = load_yaml(DIALECT.write(cell, target).text, "x")
    assert isinstance(written, list)
    assert {name: written[0][name] for name in others} == others
    assert written[0]["disk"]["pciAddress"] == "0:1:2.0"
    assert kubevirt.read_item(written[0]) == cell


def test_the_defaults_of_kubevirt_can_be_said() -> None:
    for block in (False, True):
        levels = DIALECT.defaults(Target(block=block))
        assert not DIALECT.find_obstacles(levels, Target(block=block))
        assert levels["cache"] in CACHE_MODES


def test_gotcha_1_native_needs_a_direct_cache() -> None:
    for cache, mode in CACHE_MODES.items():
        obstacles = DIALECT.find_obstacles({"cache": cache, "aio": "native"}, Target())
        assert [item.nearest for item in obstacles] == ([] if mode.direct else ["threads"])
    existing = Target(existing="name: a\nio: native\ncache: none\n")
    assert "io" not in DIALECT.write({"cache": "writeback"}, existing).text


def test_gotcha_6_a_cache_is_written_always_and_one_that_is_not_is_unknown() -> None:
    paste = DIALECT.write({"cache": "none"}, Target(disk="root", machine="web/vm"))
    assert "cache: none" in paste.text and "kubectl edit vm vm" in paste.where
    assert any("does not start" in note and "writethrough" in note for note in paste.notes)
    disk = find_disk("silent-vm.yaml", "rootdisk")
    assert disk.configured is not None and "cache" not in disk.configured.levels
    remark = next(each for each in disk.remarks if each.rule == "cache-chosen-silently")
    assert (remark.effect, remark.certainty) == ("unknown", "unknown")
    assert remark.change is not None and "cache: none" in remark.change.text
    assert "preference" in remark.what


def test_gotcha_6_a_shareable_disk_has_no_page_cache() -> None:
    shared = Target(existing="name: q\nshareable: true\ndisk: {bus: virtio}\n")
    for cache, mode in CACHE_MODES.items():
        assert bool(DIALECT.find_obstacles({"cache": cache}, shared)) != mode.direct
    disk = find_disk("refused-vm.yaml", "quorum")
    (remark,) = disk.remarks
    assert remark.effect == "will not start" and remark.change is not None
    assert "shareable: true" in remark.change.text and "cache: none" in remark.change.text


def test_gotcha_7_page_cache_and_migration() -> None:
    for cache, mode in CACHE_MODES.items():
        notes = DIALECT.write({"cache": cache}, Target()).notes
        assert any("unsafe to migrate" in note for note in notes) != mode.direct


def test_modes_of_1_10_say_that_an_older_one_refuses_them() -> None:
    for cache in CACHE_MODES:
        notes = DIALECT.write({"cache": cache}, Target()).notes
        assert any("before 1.10" in note for note in notes) == (cache in ("directsync", "unsafe"))


def find_disk(file: str, name: str) -> MachineDisk:
    (machine,) = read_fixture(kubevirt_objects.READING, "kubevirt", file)
    return next(disk for disk in machine.disks if disk.name == name)


def test_a_machine_and_its_instance_are_told_apart_while_a_restart_waits() -> None:
    spool = find_disk("list-vm-vmi.json", "spool")
    assert spool.configured is None and spool.pending is not None and spool.running is not None
    assert (spool.pending.levels["cache"], spool.running.levels["cache"]) == ("none", "writeback")
    assert spool.running.levels["discard"] == spool.pending.levels["discard"] == "ignore"
    export = find_disk("list-vm-vmi.json", "export")
    assert export.pending is None and export.kind == "block"
    assert [remark.rule for remark in export.remarks] == ["hot-plugged"]


def test_an_instance_that_ended_is_not_what_runs() -> None:
    text = (MACHINES / "kubevirt" / "list-vm-vmi.json").read_text()
    (machine,) = kubevirt_objects.read_machines(text.replace('"Running"', '"Failed"'), "x")
    assert [disk.name for disk in machine.disks] == ["root", "spool"]
    assert all(disk.running is None for disk in machine.disks)


def test_what_kubevirt_writes_itself_is_told_and_not_judged() -> None:
    (machine,) = read_fixture(kubevirt_objects.READING, "kubevirt", "fedora-vm.yaml")
    assert [disk.name for disk in machine.disks] == ["rootdisk", "datadisk"]
    assert any("cloudinitdisk" in note for note in machine.notes)
    data = machine.disks[1].configured
    assert data is not None and data.levels["iothread"] == "on"  # another disk's thread does it


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt}\n",
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nspec: {template: {spec: 3}}\n",
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nspec: [",
        "",
    ],
)
def test_what_is_no_machine_is_refused_or_has_no_disks(text: str) -> None:
    try:
        machines = kubevirt_objects.read_machines(text, "x")
    except UsageError as error:
        assert str(error).startswith("x")
    else:
        assert [machine.disks for machine in machines] == [()]


def test_too_many_disks_are_refused() -> None:
    disks = ",".join(f"{{name: a{n}}}" for n in range(MAX_DISKS + 1))
    text = f"kind: VirtualMachine\nspec: {{template: {{spec: {{domain: {{devices: {{disks: [{disks}"
    with pytest.raises(UsageError, match="too many disks"):
        kubevirt_objects.read_machines(text + "]}}}}}", "x")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "none", "virtio", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "name", "disk", "lun", "cdrom", "bus", "cache", "io", "shareable", "dedicatedIOThread",
            "readonly", "spec", "template", "domain", "devices", "disks", "volumes", "status",
            "volumeStatus", "hotplugVolume", "persistentVolumeClaim", "claimName", "metadata",
        ]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JUNK, JUNK, JUNK)
def test_any_object_is_read_or_refused(disks: object, volumes: object, status: object) -> None:
    spec = {"domain": {"devices": {"disks": [disks, {"name": "a", "disk": disks}]}},
            "volumes": [volumes, {"name": "a", "hostDisk": volumes}]}  # fmt: skip
    for kind, inside in (("VirtualMachine", {"template": {"spec": spec}}), ("", spec)):
        item = {"kind": kind, "spec": inside, "status": {"phase": "Running", "volumeStatus": [
            status, {"name": "a", "hotplugVolume": status}]}}  # fmt: skip
        for machine in kubevirt_objects.read_machines(dump_yaml(item), "x"):
            assert all(isinstance(disk, MachineDisk) for disk in machine.disks)
