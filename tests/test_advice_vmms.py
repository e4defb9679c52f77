"""Firecracker, Cloud Hypervisor, crosvm and QEMUs in containers: what their words tell."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.advice import cloud_hypervisor, container_disks, containers, crosvm, firecracker
from diskproof.advice.dialect import Reading
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import MachineDisk
from support.machine_fixtures import read_fixture

READINGS = (
    firecracker.READING,
    cloud_hypervisor.READING,
    crosvm.READING,
    containers.READING,
)


def find_disks(reading: Reading, folder: str, file: str) -> dict[str, MachineDisk]:
    return {
        disk.name: disk for machine in read_fixture(reading, folder, file) for disk in machine.disks
    }


def test_firecracker_offers_no_flush_unless_it_is_told_to() -> None:
    disks = find_disks(firecracker.READING, "firecracker", "vm_config.json")
    layer = disks["data"].configured
    assert layer is not None and layer.levels["flush"] == "not advertised"
    assert "flush" in layer.assumed
    (remark,) = disks["data"].remarks
    assert (remark.rule, remark.effect) == ("not-advertised", "loses")
    assert "is the default" in remark.what and remark.change is not None
    drive = json.loads(remark.change.text)
    assert drive == {**json.loads(disks["data"].line), "cache_type": "Writeback"}
    assert disks["rootfs"].read_only and not disks["rootfs"].remarks
    written = find_disks(firecracker.READING, "firecracker", "get-vm-config.json")
    assert "is set" in written["scratch"].remarks[0].what
    levels = written["rootfs"].configured
    assert levels is not None and levels.levels["flush"] == "advertised"


def test_what_a_vhost_user_process_does_is_unknown() -> None:
    found = [
        find_disks(firecracker.READING, "firecracker", "vhost-user.json")["spdk0"],
        find_disks(cloud_hypervisor.READING, "cloud_hypervisor", "ch-remote-info.json")["spdk"],
        find_disks(cloud_hypervisor.READING, "cloud_hypervisor", "run.sh")["out"],
    ]
    for disk in found:
        (remark,) = disk.remarks
        assert (remark.effect, remark.certainty) == ("unknown", "unknown")
        assert all("flush" not in layer.levels for layer in disk.layers.values())


def test_cloud_hypervisor_is_read_from_its_json_and_its_command_line() -> None:
    info = find_disks(cloud_hypervisor.READING, "cloud_hypervisor", "ch-remote-info.json")
    line = find_disks(cloud_hypervisor.READING, "cloud_hypervisor", "run.sh")
    assert info["_disk0"].running is not None and line["data"].configured is not None
    assert (
        info["_disk0"].running.levels["direct"] == line["data"].configured.levels["direct"] == "on"
    )
    assert line["data"].image == "/dev/vg0/data" and line["data"].kind == "block"
    plain = line["disk0"].configured
    assert plain is not None and plain.levels["direct"] == "off" and "direct" in plain.assumed
    assert line["disk1"].read_only and info["_disk1"].read_only


def test_crosvm_is_read_from_its_command_line() -> None:
    disks = find_disks(crosvm.READING, "cloud_hypervisor", "crosvm.sh")
    assert [disk.read_only for disk in disks.values()] == [True, False, False]
    assert [disk.image for disk in disks.values()] == ["root.img", "data.img", "/dev/vg0/swap"]
    direct = [disk.configured.levels["direct"] for disk in disks.values() if disk.configured]
    assert direct == ["off", "on", "off"]


def test_the_environment_of_a_container_is_taken_as_its_image_takes_it() -> None:
    build, db = read_fixture(containers.READING, "containers", "compose-farm.yml")
    (disk,) = build.disks
    assert disk.remarks[0].change is not None and "DISK_CACHE" in disk.remarks[0].change.text
    levels = [each.configured.levels for each in db.disks if each.configured]
    assert [each["aio"] for each in levels] == ["threads", "threads"]  # native needs direct I/O
    assert [each["discard"] for each in levels] == ["ignore", "ignore"]
    assert [each.kind for each in db.disks] == ["file", "block"]
    assert build.name == "build" and db.disks[0].image == "./db/data.img"


def test_a_container_with_qemus_own_command_line_is_read_as_that() -> None:
    (machine,) = read_fixture(containers.READING, "containers", "podman-inspect.json")
    (disk,) = machine.disks
    assert (machine.name, machine.manager, machine.pid) == ("ci-runner", "qemu", None)
    assert disk.configured is not None and disk.configured.levels["cache"] == "none"


def test_a_shell_in_a_container_that_starts_qemu_is_read() -> None:
    text = """services:
  vm:
    image: debian:13
    env_file: .env
    command: ["sh", "-c", "exec qemu-system-x86_64 -drive file=/a.img,cache=unsafe,if=virtio"]
"""
    (machine,) = containers.read_machines(text, "x")
    assert machine.disks[0].configured is not None
    assert machine.disks[0].configured.levels["cache"] == "unsafe"
    assert "its env_file was not read" in machine.notes


@pytest.mark.parametrize(
    ("env", "level"),
    [({}, "none"), ({"DISK_CACHE": "writeback"}, "writeback"), ({"DISK_CACHE": "'none'"}, "none"),
     ({"DISK_CACHE": "${CACHE}"}, None), ({"DISK_CACHE": "fast"}, None)],
)  # fmt: skip
def test_a_variable_of_the_shells_is_not_known(env: dict[str, str], level: str | None) -> None:
    disks = container_disks.read_disks("qemux/qemu", env, {}, {})
    assert disks is not None and disks[0].configured is not None
    assert disks[0].configured.levels.get("cache") == level
    bad = [remark.effect for remark in disks[0].remarks]
    assert bad == (["will not start"] if env.get("DISK_CACHE") == "fast" else [])


@pytest.mark.parametrize(
    ("image", "repository"),
    [("ghcr.io/qemus/qemu:7.48", "qemus/qemu"), ("qemux/qemu", "qemux/qemu"),
     ("localhost:5000/dockurr/windows@sha256:00", "dockurr/windows"), ("qemu", "qemu")],
)  # fmt: skip
def test_an_image_is_known_by_its_repository(image: str, repository: str) -> None:
    assert containers.Container("a", image, {}).repository == repository


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (firecracker.READING, '{"boot-source": {}}'),
        (firecracker.READING, '{"drives": {}}'),
        (firecracker.READING, '{"drives": [{"drive_id": NaN}]}'),
        (cloud_hypervisor.READING, '{"config": {"disks": null}}'),
        (cloud_hypervisor.READING, "echo --disk"),
        (cloud_hypervisor.READING, f"cloud-hypervisor --disk path={'[a' * 5000}"),
        (cloud_hypervisor.READING, "cloud-hypervisor --disk 'path="),
        (crosvm.READING, "crosvm stop /run/crosvm.sock"),
        (containers.READING, "services: {web: {image: nginx}}"),
        (containers.READING, '[{"Config": {"Image": "qemux/qemu", "Env": [1'),
        (containers.READING, "services: [qemux/qemu]"),
    ],
)
def test_what_tells_of_no_machine_is_refused(reading: Reading, text: str) -> None:
    with pytest.raises(UsageError):
        reading.read_machines(text, "x")


WORDS = st.sampled_from([
    "drives", "drive_id", "path_on_host", "cache_type", "Unsafe", "socket", "config", "disks",
    "path", "direct", "on", "vhost_user", "state", "Running", "services", "image", "qemux/qemu",
    "environment", "DISK_CACHE=none", "ARGUMENTS", "-drive file=a", "-blockdev {", "volumes",
    "devices", "/disk:/disk2", "Config", "Env", "Args", "Path", "Mounts", "Destination", "command",
    "qemu-system-x86_64 -hda a", "'",
])  # fmt: skip
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=16,
)


@settings(max_examples=400, deadline=None)
@given(TREES)
def test_any_document_is_read_or_refused(tree: object) -> None:
    for text in (
        json.dumps(tree),
        json.dumps({"drives": tree, "disks": tree, "services": tree}),
        json.dumps({"drives": [tree], "config": {"disks": [tree]}, "services": {"a": tree}}),
        json.dumps([{"Config": tree, "Path": "qemu-system-i386", "Args": tree, "Mounts": tree}]),
    ):
        for reading in READINGS:
            reading.claims(text)
            try:
                reading.read_machines(text, "x")
            except UsageError:
                continue


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="cloud-hypervisor run --disk path=,[]\"'\\\n", max_size=80))
def test_any_command_line_is_read_or_refused(text: str) -> None:
    for reading in (cloud_hypervisor.READING, crosvm.READING):
        for start in ("cloud-hypervisor --disk ", "crosvm run --block ", "crosvm run -d"):
            try:
                reading.read_machines(start + text, "x")
            except UsageError:
                continue
