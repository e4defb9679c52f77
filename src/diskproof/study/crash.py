"""The rules of a crash study: the study's ``[crash]`` table as data, and what a writer needs.

They shape what is recorded and explored, not a measured run: they are no part of a study's id,
and all of them stand in the options of a crash cell, so that changed rules make new verdicts.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from diskproof.records import Cell, WorkloadSpec
from diskproof.records.verdicts import FAULTS, Fault
from diskproof.study import keys
from diskproof.study.factors import FRONTENDS
from diskproof.study.guest_program import NAME as PROGRAM
from diskproof.study.guest_program import GuestProgram, read_program
from diskproof.study.guest_root import name_root, split_root
from diskproof.study.toml_lines import shown
from diskproof.units import parse_size, render_bytes

KIND = "crash"
"""The kind of workload of a crash cell; its name is the writer."""

SECTORS = tuple(1 << bit for bit in range(6, 17))
"""What a crash leaves whole: less than the 512 bytes of a disk is a shorn sector."""
KNOWN_SECTORS = f"a power of two from {SECTORS[0]} to {SECTORS[-1]}"
GRANULARITIES = tuple(1 << bit for bit in range(9, 31))
"""What a device discards whole, when it may carry out a part of a discard."""
KNOWN_GRANULARITIES = (
    f"a power of two from {render_bytes(GRANULARITIES[0])} to {render_bytes(GRANULARITIES[-1])}, "
    "and no less than a sector"
)
DURABLE = ("flush", "fua", "write")
"""What a writer takes for a promise: a flush, a write asked to be durable, or any write."""

WRITERS: dict[str, tuple[str, ...]] = {
    "ledger": tuple(name for name in FRONTENDS if name != "own-guest"),
    "ledger-fs": ("guest",),
    "sqlite": ("host", "guest"),
    "postgres": ("host", "guest"),
    "program": ("guest",),
}
"""The writers by name with the frontends they work in."""

ON_FILE_SYSTEM = ("ledger-fs", "sqlite", "postgres", "program")
"""Writers that write on a file system when they are in a guest."""

FILE_SYSTEM_BYTES = {"ext4": 16 << 20, "xfs": 300 << 20, "btrfs": 110 << 20}
"""Those file systems, with the smallest disk that each can be made on."""

ZFS_BYTES = {"zfs": 128 << 20, "zfs-log": 192 << 20, "zvol-ext4": 128 << 20}
"""A pool's own file system, without and with a separate log device; ext4 on a pool's volume."""

GUEST_FILE_SYSTEM_BYTES = {**FILE_SYSTEM_BYTES, "f2fs": 64 << 20, **ZFS_BYTES}
"""Those that writers in a guest may be on."""

FILE_SYSTEM_EXTRAS = {"f2fs": "storage", **dict.fromkeys(ZFS_BYTES, "zfs")}
"""Those of them that the ordinary guest lacks, and the name in ``guest.packages`` of what has it.
It has no servers."""

BESIDE = "beside"
"""The level of cells whose file system commits and writes back between the program's operations."""

COMMITTING = (*FILE_SYSTEM_BYTES, "f2fs")
"""Those of them whose commits can be asked for without a flush of what the program wrote."""

OF_RECORDS = ("records", "durable", "flush_every", "depth")
"""Rules of our own writers, which others do not know."""

WRITER_BYTES = {"postgres": 80 << 20}
"""What a writer needs beyond that: an empty cluster has 31 MiB."""

GUEST_EXTRAS = {"postgres": "postgres"}
"""Writers whose guest has further packages, and their name in ``guest.packages``."""


def beside_writeback(cell: Cell) -> Cell:
    """The same program once more: a run of a second sees no commit that it does not ask for, so
    here they are made beside it."""
    return replace(cell, levels=tuple(sorted((*cell.levels, (BESIDE, "writeback")))))


def guest_extra(writer: str, file_system: str, root: str = "") -> str:
    """What the guest of a writer on a file system has beyond the ordinary one, or nothing. A file
    system's tools come before those of a ``root``, whose packages come with them."""
    kind, packages = split_root(root)
    found = FILE_SYSTEM_EXTRAS.get(file_system) or kind or GUEST_EXTRAS.get(writer, "")
    return name_root(found, packages)


def extra_of(workload: WorkloadSpec) -> str:
    """The same, of a writer that was made a workload."""
    option = workload.option
    return guest_extra(writer_of(workload), option("filesystem"), option("root"))


def writer_of(workload: WorkloadSpec) -> str:
    """The writer of a crash cell: a program that brings its check has any name."""
    return PROGRAM if workload.option("check") else workload.name


FAULT_WORDS: dict[Fault, str] = {
    "power": "the host loses power",
    "qemu-kill": "QEMU, or the program on the host, is killed",
    "guest-kill": "the guest is killed, QEMU ends in order",
    "lying-device": "the host loses power and its disk ignores flushes",
    "old-content": "the host loses power, and what was not written holds what was there before",
    "power-ext4": "the host loses power, by the rules of ext4",
    "power-ext4-journal": "the host loses power, by the rules of ext4 with data=journal",
    "power-ext4-writeback": "the host loses power, by the rules of ext4 with data=writeback",
    "power-xfs": "the host loses power, by the rules of XFS",
    "power-btrfs": "the host loses power, by the rules of btrfs",
    "power-f2fs": "the host loses power, by the rules of f2fs",
    "power-f2fs-unwaited": "the host loses power, by f2fs of Linux, which may not wait for fsync",
}

USUAL_FAULTS: tuple[Fault, ...] = ("power", "qemu-kill", "guest-kill", "lying-device")
"""Those of a study that names none."""

MAX_RECORDS = 100_000
MAX_DISK = 1 << 30
"""What is recorded is kept whole, and each state is looked at: small is thorough."""


def _read_faults(value: object) -> tuple[Fault, ...]:
    named = keys.known("fault", FAULTS)(value)
    return tuple(fault for fault in FAULTS if fault in named)


def _read_size(value: object) -> int:
    size = keys.auto_size(value)
    if size is None or size > MAX_DISK:
        raise ValueError(f"the disk of a crash study has at most {render_bytes(MAX_DISK)}")
    return size


def _read_sector(value: object) -> int:
    size = parse_size(value) if isinstance(value, str | int) else 0
    if size not in SECTORS:
        raise ValueError(f"{shown(value)} is no sector size: it is {KNOWN_SECTORS}")
    return size


def read_granularity(value: object) -> int:
    """Bytes of a discard granularity; 0: a discard is whole. Raises ValueError."""
    size = parse_size(value) if isinstance(value, str | int) else -1
    if size not in (0, *GRANULARITIES):
        raise ValueError(f"{shown(value)} is no discard granularity: it is {KNOWN_GRANULARITIES}")
    return size


@dataclass(frozen=True)
class CrashRules:
    """``[crash]`` of a study.

    A writer ends after ``records`` records or ``seconds``, whatever comes first. ``states`` and
    ``explore_seconds`` bound the search for each fault; ``sector`` is what a disk writes in one
    piece, in bytes, ``discard_granularity`` what it discards so (0: each discard is whole).
    ``seed`` 0 takes the study's. ``filesystem`` and ``mount`` (its mount options) are those of
    writers on a file system in a guest.
    """

    writers: tuple[str, ...] = keys.field(("ledger",), keys.known("writer", WRITERS))
    faults: tuple[Fault, ...] = keys.field(USUAL_FAULTS, _read_faults)
    records: int = keys.field(256, keys.whole(1, MAX_RECORDS))
    seconds: float = keys.field(10.0, keys.duration(1))
    durable: str = keys.field("flush", keys.choice(*DURABLE))
    flush_every: int = keys.field(4, keys.whole(1, MAX_RECORDS))
    depth: int = keys.field(4, keys.whole(1, 64))
    size: int = keys.field(16 << 20, _read_size)
    filesystem: str = keys.field("ext4", keys.choice(*GUEST_FILE_SYSTEM_BYTES))
    mount: str = keys.field("", keys.matching(r"[a-z0-9_=,.:-]{0,200}", "a list of mount options"))
    states: int = keys.field(20_000, keys.whole(1, 10**9))
    explore_seconds: float = keys.field(20.0, keys.duration(1))
    sector: int = keys.field(512, _read_sector)
    discard_granularity: int = keys.field(0, read_granularity)
    seed: int = keys.field(0, keys.whole(0, keys.MAX_SEED))
    program: GuestProgram | None = None


def read_crash(content: object, mistakes: keys.Mistakes, folder: Path = Path()) -> CrashRules:
    """``[crash]`` of a study in ``folder``; mistakes are noted."""
    program = read_program(content, folder, mistakes)
    rules = keys.read_table(
        CrashRules, content, ("crash",), mistakes, ("program",), program=program
    )
    if (program is not None) != ("program" in rules.writers):
        message = 'crash: [crash.program] and writers = ["program"] go together'
        mistakes.add(("crash", "writers"), message, "program")
    if 0 < rules.discard_granularity < rules.sector:
        message = f"crash.discard_granularity: it is {KNOWN_GRANULARITIES}"
        mistakes.add(("crash", "discard_granularity"), message, "sector")
    least = GUEST_FILE_SYSTEM_BYTES[rules.filesystem]
    extra = FILE_SYSTEM_EXTRAS.get(rules.filesystem)
    has_servers = program is not None and split_root(program.root)[0] in ("postgres", "servers")
    if extra and ("postgres" in rules.writers or has_servers):
        message = f"crash.filesystem: the guest with {rules.filesystem} has no PostgreSQL"
        mistakes.add(("crash", "filesystem"), message, rules.filesystem)
    if "ledger-fs" in rules.writers and rules.size < least:
        message = f"crash.size: {rules.filesystem} needs a disk of {render_bytes(least)}"
        mistakes.add(("crash", "filesystem"), message, rules.filesystem)
    return rules


def faults_of(frontend: str, wanted: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Those faults that mean something to a frontend: on the bare host there is no guest."""
    return tuple(fault for fault in wanted if frontend != "host" or fault != "guest-kill")


RECORDING_SECONDS = {"host": 1.5, "daemon": 2.0, "guest": 25.0}


def longest_seconds(frontend: str, writing: float, search: float, faults: int) -> float:
    """What a recording and the ``search`` under so many faults take at most, in seconds."""
    return RECORDING_SECONDS.get(frontend, 0.0) + writing + search * faults


def least_disk(rules: CrashRules, writer: str, frontend: str) -> int:
    """Bytes of the smallest disk that a writer can do its work on; 0 for any."""
    if frontend != "guest" or writer not in ON_FILE_SYSTEM:
        return 0
    more = rules.program.room_bytes if rules.program and writer == "program" else 0
    return GUEST_FILE_SYSTEM_BYTES[rules.filesystem] + WRITER_BYTES.get(writer, 0) + more


def runs_beside(rules: CrashRules, writer: str, frontend: str) -> bool:
    """Whether a writer in a guest is run once more so: of ours it is known what they flush."""
    in_guest = writer == PROGRAM and frontend == "guest"
    return in_guest and rules.filesystem in COMMITTING and "power" in rules.faults


def crash_workload(rules: CrashRules, writer: str, frontend: str) -> WorkloadSpec:
    """The writer as a workload: all that shapes its recording and the search for losses."""
    unfit = {"writers", "faults", "program"}
    if frontend != "guest" or writer not in ON_FILE_SYSTEM:
        unfit |= {"filesystem", "mount"}
    if not rules.discard_granularity:
        unfit |= {"discard_granularity"}
    values = {name: value for name, value in asdict(rules).items() if name not in unfit}
    if rules.program and writer == "program":
        # Those who end by themselves write what they like.
        values = {k: v for k, v in values.items() if k not in OF_RECORDS}
        values, writer = values | rules.program.options(), rules.program.name
    options = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }
    return WorkloadSpec(writer, KIND, tuple(sorted(options.items())))
