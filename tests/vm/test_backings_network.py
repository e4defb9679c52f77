"""Guests whose disks are reached over NBD and iSCSI.

Requires the built guest, qemu-nbd, and for iSCSI root, tgt and QEMU's iscsi driver.
"""

import os
from pathlib import Path

import pytest

from diskproof.backings.iscsi import require_target
from support.running import execute, make_spec
from support.volumes import backing, find_missing

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="servers run as another user")


@pytest.mark.parametrize(
    ("kind", "bus", "server"),
    [
        ("nbd", "virtio-blk", "nbd+unix:///disk?socket=server.sock"),
        ("iscsi", "virtio-scsi", '"target": "iqn.2024-01.diskproof:disk"'),
    ],
)
def test_a_guest_over_a_network(tmp_path: Path, kind: str, bus: str, server: str) -> None:
    missing = find_missing(require_target) if kind == "iscsi" else ""
    if missing:
        pytest.skip(missing)
    spec = make_spec("sync-write-4k", size="16MiB", runtime="1s", ramp="0s")
    levels = {"frontend": "guest", "format": "raw", "cache": "writethrough", "bus": bus}
    record = execute(tmp_path, spec, on=backing(kind), **levels)
    assert record.failure is None
    told = {check.name: check.effective for check in record.checks}
    assert server in told["server"]
    assert told["server: flushes passed on"] == "5 of 5"
    assert told["guest: write_cache"] == "write through"
    assert told["files of others"] == "out of reach"
