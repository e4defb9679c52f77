"""The configuration of a container, as the OCI runtime specification has it."""

import json
from pathlib import Path
from typing import Any

from diskproof.container.oci import (
    CONFIG,
    FORBIDDEN,
    NAMESPACES,
    Bundle,
    make_bundle,
    render_config,
)

BUNDLE = Bundle("/tmp/disk.raw", "/tmp/scratch-1", (65534, 65534), ("fio", "--version"))


def config() -> dict[str, Any]:
    return render_config(BUNDLE)


def test_one_id_is_mapped_and_no_rights_are_given() -> None:
    process, linux = config()["process"], config()["linux"]
    assert process["args"] == ["fio", "--version"]
    assert process["noNewPrivileges"] is True
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert len(process["capabilities"]) == 5
    wanted = [{"containerID": 0, "hostID": 65534, "size": 1}]
    assert (linux["uidMappings"], linux["gidMappings"]) == (wanted, wanted)
    assert len(linux["namespaces"]) == len(NAMESPACES) == 6


def test_only_the_disk_and_the_scratch_folder_of_the_host_are_writable() -> None:
    assert config()["root"] == {"path": "rootfs", "readonly": True}
    bound = [mount for mount in config()["mounts"] if mount["type"] == "bind"]
    writable = {mount["source"] for mount in bound if "ro" not in mount["options"]}
    assert writable == {BUNDLE.disk, BUNDLE.scratch}
    assert "/usr" in {mount["source"] for mount in bound}


def test_system_calls_that_leave_the_walls_are_refused() -> None:
    rules = config()["linux"]["seccomp"]["syscalls"]
    assert {"mount", "unshare", "setns", "bpf", "ptrace", "io_uring_setup"} < set(FORBIDDEN)
    assert rules[0] == {"names": list(FORBIDDEN), "action": "SCMP_ACT_ERRNO"}
    assert len(set(FORBIDDEN)) == len(FORBIDDEN)
    flags = rules[1]["args"][0]
    assert (flags["value"], flags["op"]) == (0x10000000, "SCMP_CMP_MASKED_EQ")


def test_a_bundle_can_be_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        make_bundle(tmp_path, BUNDLE)
    assert json.loads((tmp_path / CONFIG).read_text()) == config()
    destinations = [mount["destination"] for mount in config()["mounts"]]
    assert [path for path in destinations if path.count("/") == 1] != []
    for path in destinations:
        if path != "/dev/shm":  # on a mount of its own
            assert (tmp_path / "rootfs" / path[1:]).exists()
