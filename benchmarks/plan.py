"""Planning 10,000 cells from a study (bar: under 1 s)."""

import statistics
import time

from diskproof.plan import make_plan
from diskproof.records import BackingFacts, HostFacts
from diskproof.study.load import parse_study

STUDY = """
workloads = ["seq-read", "seq-write"]
[factors]
frontend = "guest"
format = ["raw", "qcow2", "qed"]
preallocation = ["off", "falloc", "full"]
cache = ["none", "writeback", "writethrough", "directsync", "unsafe"]
aio = ["threads", "native", "io_uring"]
bus = ["virtio-blk", "virtio-scsi", "ide", "ahci"]
cluster_size = ["64K", "256K", "1M", "2M"]
discard = ["ignore", "unmap"]
detect-zeroes = ["off", "on", "unmap"]
vcpus = [1, 2]
"""
FACTS = HostFacts(
    memory_bytes=8 << 30,
    cpus=2,
    accel="tcg",
    accel_reason="benchmark",
    frontends=frozenset({"host", "daemon", "guest"}),
    aio=frozenset({"threads", "native", "io_uring"}),
    formats=frozenset({"raw", "qcow2", "qed"}),
    buses=frozenset({"virtio-blk", "virtio-scsi", "ide", "ahci"}),
    iothread_buses=frozenset({"virtio-blk", "virtio-scsi"}),
    backings={"directory": BackingFacts("/images", "ext4", True, "", 1 << 40)},
)


def main() -> None:
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        made = make_plan(parse_study(STUDY), FACTS)
        seconds.append(time.perf_counter() - began)
    dropped = sum(each.count for each in made.dropped)
    median = statistics.median(seconds)
    cells = len(made.cells)
    print(f"{cells:,} cells kept, {dropped:,} dropped in {median:.2f} s (median of 5)")
    print(f"10,000 cells: {median * 10_000 / cells:.2f} s")


if __name__ == "__main__":
    main()
