"""The host's disk fails under a guest: a loop device whose file is cut, so that what lay behind
cannot be read (the kernel's own EIO).

Requires the built guest, qemu-system-x86_64 and root.
"""

import os
from pathlib import Path

import pytest

from diskproof.backings.loop import start_loop
from diskproof.records import BackingSpec, WorkloadSpec
from diskproof.study.load import parse_study
from support.running import execute, make_spec, under_load

SIZE = 64 << 20
GUEST = {"frontend": "guest", "format": "raw", "cache": "none", "bus": "virtio-blk"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a loop device")


def silent_command() -> WorkloadSpec:
    """A program that takes no notice of what it could not read."""
    command = '["sh", "-c", "dd if={disk} of=/dev/null bs=1M; true"]'
    text = f'[workloads.read]\ncommand = {command}\n[protocol]\nsize = "64MiB"\n'
    return parse_study(text).workloads[0]


@needs_root
@pytest.mark.parametrize(
    "spec", [make_spec("rand-read-4k-d1", runtime="5s"), silent_command()], ids=["fio", "silent"]
)
def test_a_disk_that_cannot_be_read_fails_the_run_and_is_named(
    tmp_path: Path, spec: WorkloadSpec
) -> None:
    file = tmp_path / "disk"
    with file.open("wb") as stream:
        stream.truncate(SIZE)
    with start_loop(file) as loop:
        device = BackingSpec("here", "device", (("path", str(loop.path)),))
        with under_load(
            "qemu-system-x86_64",
            lambda qemu: os.truncate(file, 1 << 20),
            ready=lambda children: "qemu-system-x86_64" in children,
        ):
            record = execute(tmp_path / "images", spec, on=device, **GUEST)
    assert record.failure and record.failure.kind == "qemu", record.failure
    assert "disk cannot be read or written" in record.failure.what
    assert "read: Input/output error (QMP event BLOCK_IO_ERROR)" in record.failure.why
    assert "dmesg" in record.failure.hint and record.metrics == ()
