"""Incus: what its devices can say, what it does by itself, and instances with planted faults."""

import itertools
import json
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice import incus, incus_instance
from diskproof.advice.dialect import Target
from diskproof.advice.dialects import READINGS
from diskproof.advice.incus_device import Device, find_levels, parse_device, render_device
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import MachineDisk
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME

FIXTURES = Path(__file__).parent / "fixtures" / "machines" / "incus"
GOLDEN = Path(__file__).parent / "golden" / "incus" / "blockdev-add-6.0.4.jsonl"
EXPECTED: dict[str, dict[str, list[str]]] = tomllib.loads((FIXTURES / "expected.toml").read_text())

# addDriveConfig of Incus 7.3 and 6.0.4: (device, pool's driver, file system) -> cache, aio.
IN_FORCE = [
    ({"pool": "p", "path": "/"}, "dir", "ext4", "none", "io_uring"),
    ({"pool": "p", "path": "/"}, "dir", "zfs", "writeback", "threads"),
    ({"pool": "p", "path": "/"}, "dir", "", "", ""),
    ({"pool": "p", "path": "/"}, "btrfs", "", "writeback", "threads"),
    ({"pool": "p", "path": "/", "io.cache": "none"}, "btrfs", "", "none", "threads"),
    ({"pool": "p", "path": "/"}, "lvm", "", "none", "io_uring"),
    ({"pool": "p", "path": "/"}, "linstor", "", "none", "io_uring"),
    ({"pool": "p", "path": "/"}, "zfs", "", "none", "native"),
    ({"pool": "p", "path": "/", "io.cache": "writeback"}, "zfs", "", "writeback", "threads"),
    ({"pool": "p", "path": "/", "io.cache": "unsafe"}, "lvm", "", "unsafe", "threads"),
    ({"pool": "p", "path": "/"}, "truenas", "", "unsafe", "threads"),
    ({"pool": "p", "path": "/"}, "ceph", "", "writeback", ""),
    ({"pool": "p", "path": "/"}, "", "", "", ""),
    ({"source": "/dev/sdb"}, "", "", "unsafe", "threads"),
    ({"source": "/dev/sdb", "io.cache": "none"}, "", "", "none", "threads"),
    ({"source": "/srv/a.img"}, "", "ext4", "none", "native"),
    ({"source": "/srv/a.img"}, "", "btrfs", "writeback", "threads"),
    ({"source": "ceph:pool/volume"}, "", "", "writeback", ""),
]


@pytest.mark.parametrize(("config", "driver", "filesystem", "cache", "aio"), IN_FORCE)
def test_what_is_in_force_is_what_incus_makes_of_it(
    config: dict[str, str], driver: str, filesystem: str, cache: str, aio: str
) -> None:
    device = Device("root", config, driver=driver, filesystem=filesystem)
    levels, assumed = find_levels(device)
    assert (levels.get("cache", ""), levels.get("aio", "")) == (cache, aio)
    assert (levels["discard"], levels["detect-zeroes"], levels["iothread"]) == (
        "unmap",
        "off",
        "off",
    )
    assert {"discard", "detect-zeroes", "iothread"} <= assumed


def test_gotcha_5_a_block_device_of_the_host_starts_unsafe_by_itself() -> None:
    disk = disk_of("nas.yaml", "bulk")
    assert disk.configured
    assert disk.configured.levels["cache"] == "unsafe"
    assert "cache" in disk.configured.assumed
    (remark,) = disk.remarks
    assert (remark.rule, remark.effect) == ("block-device-unsafe-by-default", "loses")
    assert remark.change
    assert remark.change.text.splitlines() == [
        "incus stop nas",
        "incus config device set nas bulk io.cache=none",
        "incus start nas",
    ]
    assert not disk_of("nas.yaml", "fast").remarks  # io.cache=none is set there


def test_gotcha_5_was_seen_with_incus_6_0_4() -> None:
    """What it asked of QEMU 10.0.13 is what is read from its configuration. It ran a machine in a
    chroot of Debian 13; KVM (TCG in its place) and vsock were feigned, nothing about disks."""
    asked = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert [each["node-name"] for each in asked if each["cache"]["no-flush"]] == ["incus_blk"]
    for each in asked:
        disk = disk_of("seen-6.0.4.yaml", each["node-name"].removeprefix("incus_"))
        assert disk.configured
        target = Target(existing=disk.line, filesystem="ext4")
        levels = incus.read(incus.write({"bus": "virtio-scsi"}, target).text, target)
        mode = CACHE_MODES[levels["cache"]]
        assert (mode.direct, mode.no_flush) == (
            each["cache"]["direct"],
            each["cache"]["no-flush"],
        )
        assert (levels["aio"], levels["discard"]) == (each["aio"], each["discard"])


def test_gotcha_5_a_truenas_pool_starts_unsafe_by_itself() -> None:
    (remark,) = disk_of("truenas.yaml", "root").remarks
    assert remark.rule == "block-device-unsafe-by-default"
    assert remark.change
    assert "\nincus config device override truenas root io.cache=none\n" in remark.change.text


@pytest.mark.parametrize(
    ("factor", "level", "nearest"),
    [
        ("cache", "writethrough", "writeback"),
        ("cache", "directsync", "none"),
        ("discard", "ignore", "unmap"),
        ("detect-zeroes", "on", "off"),
        ("iothread", "on", "off"),
        ("bus", "ide", "virtio-scsi"),
        ("format", "qcow2", "raw"),
        ("preallocation", "full", "off"),
        ("l2-cache-size", "64M", "32M"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_nearest(
    factor: str, level: str, nearest: str
) -> None:
    (found,) = incus.find_obstacles({factor: level}, Target())
    assert (found.factor, found.nearest) == (factor, nearest)
    with pytest.raises(ValueError, match=factor):
        incus.write({"cache": "none", factor: level}, Target())


def test_aio_is_decided_by_the_cache_and_the_pool() -> None:
    for cache in ("writeback", "unsafe"):
        (found,) = incus.find_obstacles({"cache": cache, "aio": "native"}, Target())
        assert found.nearest == "threads"
    zfs = Target(existing="incus local root: path=/ pool=p\npool p: driver=zfs")
    assert not incus.find_obstacles({"cache": "none", "aio": "native"}, zfs)
    (found,) = incus.find_obstacles({"cache": "none", "aio": "io_uring"}, zfs)
    assert found.nearest == "native"
    assert not incus.find_obstacles({"cache": "none", "aio": "io_uring"}, Target())


PLACES = {
    "lvm": "incus local root: path=/ pool=p size=8GiB\npool p: driver=lvm",
    "zfs": "incus profile root: path=/ pool=p io.cache=unsafe\npool p: driver=zfs",
    "btrfs": "incus device root: path=/ pool=p\npool p: driver=btrfs",
    "ext4": "incus local root: path=/ pool=p\npool p: driver=dir filesystem=ext4",
    "host": "incus local data: source=/dev/sdb io.bus=nvme",
    "file": "incus local data: source=/srv/a.img\npool -: filesystem=xfs",
}
CELLS = [
    dict(zip(("cache", "aio", "discard", "detect-zeroes", "iothread", "bus"), cell, strict=True))
    for cell in itertools.product(
        CACHE_MODES,
        FACTOR_BY_NAME["aio"].levels,
        ("ignore", "unmap"),
        ("off", "on", "unmap"),
        ("off", "on"),
        FACTOR_BY_NAME["bus"].levels,
    )
]


@pytest.mark.parametrize("place", PLACES)
def test_every_cell_that_can_be_said_is_read_back(place: str) -> None:
    target = Target(machine="vm", existing=PLACES[place])
    sayable = [cell for cell in CELLS if not incus.find_obstacles(cell, target)]
    assert len(sayable) == 3 * 3  # cache, with the one aio that it brings, and bus
    for cell in sayable:
        text = incus.write(cell, target).text
        assert incus.read(text, target) == cell, text


def test_the_command_names_only_what_changes() -> None:
    local = Target(machine="vm", existing=PLACES["lvm"])
    assert incus.write({"cache": "writeback", "bus": "virtio-scsi"}, local).text == (
        "incus stop vm\nincus config device set vm root io.cache=writeback\nincus start vm"
    )
    inherited = Target(machine="my vm", existing=PLACES["zfs"].replace("incus", "lxc", 1))
    assert incus.write({"cache": "none"}, inherited).text == (
        "lxc stop 'my vm'\nlxc config device override 'my vm' root io.cache=none\nlxc start 'my vm'"
    )
    new = Target(machine="vm", image="/dev/sdb", block=True)
    paste = incus.write({"cache": "none", "bus": "virtio-blk"}, new)
    assert paste.text == (
        "incus config device add vm data disk source=/dev/sdb io.cache=none io.bus=virtio-blk"
    )
    assert "cache=unsafe" in paste.notes[0]
    assert incus.read(paste.text, new)["cache"] == "none"


def test_defaults_follow_the_backing() -> None:
    assert incus.find_defaults(Target())["cache"] == "none"
    assert incus.find_defaults(Target(filesystem="btrfs"))["cache"] == "writeback"
    assert incus.find_defaults(Target(block=True))["cache"] == "unsafe"
    assert incus.find_defaults(Target(block=True, filesystem="zfs"))["aio"] == "native"


NAME = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True)


@given(
    name=st.text(min_size=1, max_size=20).filter(lambda text: "\n" not in text),
    config=st.dictionaries(NAME, st.text(max_size=20).filter(lambda text: "\n" not in text)),
    origin=st.sampled_from(("local", "profile", "")),
    driver=st.sampled_from(("", "zfs", "dir")),
)
def test_a_device_is_read_as_it_was_written(
    name: str, config: dict[str, str], origin: str, driver: str
) -> None:
    device = Device(name, config, origin, driver)
    assert parse_device(render_device(device)) == device


@given(st.text(max_size=200))
def test_any_text_is_a_device_or_a_usage_error(text: str) -> None:
    for candidate in (text, f"incus config device set vm root {text}"):
        try:
            levels = incus.read(candidate, Target())
        except UsageError:
            continue
        assert set(levels) <= set(FACTOR_BY_NAME)


def disk_of(file: str, name: str) -> MachineDisk:
    machines = incus_instance.read_machines((FIXTURES / file).read_text(), file)
    named = {disk.name: disk for machine in machines for disk in machine.disks}
    named |= {f"{each.name}/{disk.name}": disk for each in machines for disk in each.disks}
    return named[name]


@pytest.mark.parametrize("file", EXPECTED)
def test_every_planted_fault_is_named_and_nothing_else(file: str) -> None:
    text = (FIXTURES / file).read_text()
    assert [each.name for each in READINGS if each.claims(text)] == ["incus"]
    machines = incus_instance.read_machines(text, file)
    assert sum(len(machine.disks) for machine in machines) == len(EXPECTED[file])
    for name, wanted in EXPECTED[file].items():
        disk = disk_of(file, name)
        assert disk.configured
        told = {remark.rule for remark in disk.remarks if not disk.read_only}
        cache = disk.configured.levels.get("cache", "")
        told |= {"read-only"} if disk.read_only else {"no-flush"} if cache == "unsafe" else set()
        rbd = disk.facts.get("driver") == "rbd"
        told |= {"rbd-cache"} if rbd else set()
        silent = cache not in CACHE_MODES and not {"unknown-cache", "line-refused"} & told
        told |= {"unknown-cache"} if silent else set()
        unknown = (
            rbd or silent or any(r.effect in ("unknown", "will not start") for r in disk.remarks)
        )
        told |= {"unknown"} if unknown else set()
        assert told - ({"unknown-cache"} - set(wanted)) == set(wanted), name


def test_a_container_and_what_is_no_disk_are_passed_over() -> None:
    machines = incus_instance.read_machines((FIXTURES / "list.json").read_text(), "list.json")
    assert [machine.name for machine in machines] == ["ci", "ledger"]
    assert (machines[0].pid, machines[1].pid) == (4242, None)
    names = {disk.name for disk in incus_instance.read_machines(
        (FIXTURES / "nas.yaml").read_text(), "nas.yaml"
    )[0].disks}  # fmt: skip
    assert "installer" not in names
    container = "config:\n  volatile.idmap.base: '0'\ndevices:\n  root:\n    type: disk\n"
    assert incus_instance.read_machines(container, "c.yaml") == ()


def test_an_instance_without_its_profiles_says_how_to_ask() -> None:
    (machine,) = incus_instance.read_machines("architecture: x\ndevices: {}\n", "vm.yaml")
    assert machine.disks == ()
    assert "-e" in machine.notes[0]


@pytest.mark.parametrize(
    ("key", "value", "speaks"),
    [
        ("raw.qemu", "-snapshot", True),
        ("raw.qemu", "-cpu host", False),
        ("raw.qemu.scriptlet", "def qemu_hook(instance, stage): pass", True),
        ("raw.qemu.conf", '[device "qemu_gpu"]\ndriver = "virtio-vga"', False),
        ("raw.qemu.conf", '[device "qemu_scsi"]\niothread = "a"', True),
        ("raw.qemu.qmp.pre-start", '{"execute": "blockdev-reopen"}', True),
    ],
)
def test_what_is_passed_to_qemu_beside_incus_is_unknown(key: str, value: str, speaks: bool) -> None:
    item: dict[str, object] = {
        "config": {key: value},
        "devices": {"root": {"type": "disk", "path": "/", "pool": "p", "io.cache": "none"}},
    }
    (machine,) = incus_instance.read_instances([item], "vm.yaml", {})
    assert bool(machine.disks[0].remarks) is speaks


@given(st.sampled_from(sorted(EXPECTED)), st.integers(0, 3000), st.integers(0, 255))
def test_truncated_and_spoilt_files_are_read_or_refused(file: str, at: int, byte: int) -> None:
    raw = (FIXTURES / file).read_bytes()
    spoilt = raw[: at % len(raw)] + bytes([byte]) + raw[at % len(raw) + 1 :]
    for data in (raw[: at % len(raw)], spoilt):
        try:
            incus_instance.read_machines(data.decode("utf-8", "replace"), file)
        except UsageError:
            continue


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(("devices", "expanded_devices", "root", "type", "config", "snapshots",
                             "state", "pid", "name", "driver", "pool")),
            inner, max_size=5,
        ),
        max_leaves=20,
    )
)  # fmt: skip
def test_documents_of_any_shape_are_read_or_refused(document: object) -> None:
    with suppress(UsageError):
        incus_instance.read_instances([document], "vm.yaml", {})


@pytest.mark.parametrize(
    "text",
    [
        "devices: [" + "[" * 100_000,
        "profiles: [a]\ndevices:\n" + "  a: {type: disk, source: /dev/a}\n" * 3,
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"b{n}: &b{n} [{','.join([f'*{p}'] * 9)}]\n" for n, p in
                  enumerate(["a", *(f"b{i}" for i in range(9))])),
        "[" * 200_000 + "]" * 200_000,
        "profiles: [a]\ndevices:\n" + "".join(
            f"  d{n}: {{type: disk, source: /dev/a}}\n" for n in range(30_000)),
    ],
    ids=range(5),
)  # fmt: skip
def test_large_and_hostile_texts_take_no_time(text: str) -> None:
    began = time.process_time()
    try:
        incus_instance.claims(text)
        incus_instance.read_machines(text, "vm.yaml")
    except UsageError:
        pass
    assert time.process_time() - began < 5
