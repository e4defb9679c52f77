"""A second disk, that data is copied from: raw, on virtio-blk, around the host's page cache, the
same for all cells, so that what differs between them is the disk under test."""

from __future__ import annotations

import json

SOURCE_NODE = "diskproof-source"
SOURCE_SERIAL = "diskproof-source"
_FDSET = 101  # beside the root's


def source_args(fd: int, *, device: bool, direct: bool) -> list[str]:
    """It lies on a file or block device that is open as ``fd``, for reading and writing."""
    node = {
        "driver": "raw",
        "node-name": SOURCE_NODE,
        "cache": {"direct": direct, "no-flush": False},
        "file": {
            "driver": "host_device" if device else "file",
            "filename": f"/dev/fdset/{_FDSET}",
            "aio": "threads",
            "cache": {"direct": direct, "no-flush": False},
        },
    }
    return [
        *("-add-fd", f"fd={fd},set={_FDSET}"),
        *("-blockdev", json.dumps(node, separators=(",", ":"))),
        *("-device", f"virtio-blk-pci,drive={SOURCE_NODE},serial={SOURCE_SERIAL}"),
    ]
