"""Host facts for tests that plan without a host."""

from dataclasses import replace
from typing import Any

from diskproof.records import BackingFacts, HostFacts

FACTS = HostFacts(
    memory_bytes=8 << 30,
    cpus=2,
    accel="tcg",
    accel_reason="the probe's guest did not answer within 10 s",
    frontends=frozenset({"host", "daemon", "guest", "own-guest"}),
    aio=frozenset({"threads", "native", "io_uring"}),
    formats=frozenset({"raw", "qcow2", "qed"}),
    buses=frozenset({"virtio-blk", "virtio-scsi", "ide", "ahci", "nvme"}),
    iothread_buses=frozenset({"virtio-blk", "virtio-scsi"}),
    backings={"directory": BackingFacts("/images", "ext4", True, "", 1 << 40)},
)


def facts_with(**changes: Any) -> HostFacts:
    return replace(FACTS, **changes)
