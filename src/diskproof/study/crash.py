"""The rules of a crash study: the study's ``[crash]`` table as data, and what a writer needs.

They shape what is recorded and explored, not a measured run: they are no part of a study's id,
and all of them stand in the options of a crash cell, so that changed rules make new verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskproof.records import WorkloadSpec
from diskproof.records.verdicts import FAULTS, Fault
from diskproof.study.factors import FRONTENDS

KIND = "crash"
"""The kind of workload of a crash cell; its name is the writer."""

SECTORS = (512, 4096)
DURABLE = ("flush", "fua", "write")
"""What a writer takes for a promise: a flush, a write asked to be durable, or any write."""

WRITERS: dict[str, tuple[str, ...]] = {
    "ledger": tuple(name for name in FRONTENDS if name != "own-guest"),
    "ledger-fs": ("guest",),
    "sqlite": ("host", "guest"),
    "postgres": ("host", "guest"),
}
"""The writers by name with the frontends they work in."""

ON_FILE_SYSTEM = ("ledger-fs", "sqlite", "postgres")
"""Writers that write on a file system when they are in a guest."""

FILE_SYSTEM_BYTES = {"ext4": 16 << 20, "xfs": 300 << 20, "btrfs": 110 << 20}
"""Those file systems, with the smallest disk that each can be made on."""

WRITER_BYTES = {"postgres": 80 << 20}
"""What a writer needs beyond that: an empty cluster has 31 MiB."""

GUEST_EXTRAS = {"postgres": "postgres"}
"""Writers whose guest has further packages, and their name in ``guest.packages``."""

FAULT_WORDS: dict[Fault, str] = {
    "power": "the host loses power",
    "qemu-kill": "QEMU, or the program on the host, is killed",
    "guest-kill": "the guest is killed, QEMU ends in order",
    "lying-device": "the host loses power and its disk ignores flushes",
}


@dataclass(frozen=True)
class CrashRules:
    """``[crash]`` of a study.

    A writer ends after ``records`` records or ``seconds``, whatever comes first. ``states`` and
    ``explore_seconds`` bound the search for each fault; ``sector`` is what a disk writes in one
    piece, in bytes. ``seed`` 0 takes the study's. ``filesystem`` and ``mount`` (its mount options)
    are those of writers on a file system in a guest.
    """

    writers: tuple[str, ...] = ("ledger",)
    faults: tuple[Fault, ...] = FAULTS
    records: int = 256
    seconds: float = 10.0
    durable: str = "flush"
    flush_every: int = 4
    depth: int = 4
    size: int = 16 << 20
    filesystem: str = "ext4"
    mount: str = ""
    states: int = 20_000
    explore_seconds: float = 20.0
    sector: int = 512
    seed: int = 0


def faults_of(frontend: str, wanted: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Those faults that mean something to a frontend: on the bare host there is no guest."""
    return tuple(fault for fault in wanted if frontend != "host" or fault != "guest-kill")


def least_disk(rules: CrashRules, writer: str, frontend: str) -> int:
    """Bytes of the smallest disk that a writer can do its work on; 0 for any."""
    if frontend != "guest" or writer not in ON_FILE_SYSTEM:
        return 0
    return FILE_SYSTEM_BYTES[rules.filesystem] + WRITER_BYTES.get(writer, 0)


def crash_workload(rules: CrashRules, writer: str, frontend: str) -> WorkloadSpec:
    """The writer as a workload: all that shapes its recording and the search for losses."""
    options = {
        "records": str(rules.records),
        "seconds": f"{rules.seconds:g}",
        "durable": rules.durable,
        "flush_every": str(rules.flush_every),
        "depth": str(rules.depth),
        "size": str(rules.size),
        "states": str(rules.states),
        "explore_seconds": f"{rules.explore_seconds:g}",
        "sector": str(rules.sector),
        "seed": str(rules.seed),
    }
    if frontend == "guest" and writer in ON_FILE_SYSTEM:
        options |= {"filesystem": rules.filesystem, "mount": rules.mount}
    return WorkloadSpec(writer, KIND, tuple(sorted(options.items())))
