"""The shape of a study file: keys, types and bounds, as pydantic models.

What a name means (which factors, levels and presets there are) is for ``load.py`` to say.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from diskproof.records.verdicts import FAULTS
from diskproof.study.crash import SECTORS, CrashRules
from diskproof.study.tiles import BUILT_IN, NETWORKS, TileRules
from diskproof.units import MIB, SCALE, parse_bytes, parse_seconds, parse_share, render_bytes

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MAX_RECORDS = 100_000
MAX_CRASH_DISK = 1 << 30


def _level_text(value: object) -> object:
    """A level as text: QEMU writes booleans as on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int) else value


def _one_or_many(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _by_name(value: object) -> object:
    """``workloads`` may be a name, a list of names, or tables."""
    names = _one_or_many(value)
    if isinstance(value, dict) or not isinstance(names, list):
        return value
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a list of workload names, or tables [workloads.NAME]")
    return {name: {} for name in names}


def _disk_size(value: object) -> object:
    if value == "auto":
        return None
    size = parse_bytes(value) if isinstance(value, str | int) else 0
    if size < 16 * MIB or size % MIB:
        raise ValueError(f"{value!r} is not a disk size: whole MiB, at least 16MiB, or auto")
    return size


def _seconds(value: object) -> float:
    if isinstance(value, str | int | float):
        return parse_seconds(value)
    raise ValueError(f"{value!r} is not a time")


def _share(value: object) -> float:
    if isinstance(value, str | int | float):
        return parse_share(value)
    raise ValueError(f"{value!r} is not a share")


def _small_disk(size: int | None) -> int:
    """What is recorded is kept whole, and each state is looked at: small is thorough."""
    if size is None or size > MAX_CRASH_DISK:
        raise ValueError(f"the disk of a crash study has at most {render_bytes(MAX_CRASH_DISK)}")
    return size


def _sector(value: object) -> object:
    size = parse_bytes(value) if isinstance(value, str | int) else 0
    if size not in SECTORS:
        raise ValueError(f"{value!r} is no sector size: {' or '.join(map(str, SECTORS))}")
    return size


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Level = Annotated[str, BeforeValidator(_level_text), StringConstraints(max_length=64)]
Levels = Annotated[list[Level], BeforeValidator(_one_or_many), Field(min_length=1, max_length=1000)]
OptionText = Annotated[str, BeforeValidator(_level_text), StringConstraints(max_length=4096)]
OptionTexts = Annotated[
    list[OptionText], BeforeValidator(_one_or_many), Field(min_length=1, max_length=100)
]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=86_400)]
Runtime = Annotated[float, BeforeValidator(_seconds), Field(ge=1, le=86_400)]
Share = Annotated[float, BeforeValidator(_share)]
DiskSize = Annotated[int | None, BeforeValidator(_disk_size)]
Sector = Annotated[int, BeforeValidator(_sector)]
Tiles = Annotated[int, Field(ge=1, le=64)]
Names = Annotated[list[str], BeforeValidator(_one_or_many), Field(min_length=1, max_length=20)]


class StrictTable(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WorkloadTable(StrictTable):
    """``[workloads.NAME]``: a preset with changes, a fio job file, or a command. None: as the
    preset says.
    A program takes other keys: ``programs`` has them."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, OptionText] = Field(init=False)

    preset: str | None = None
    job: str | None = None
    command: list[OptionText] | None = None
    runtime: Runtime | None = None
    ramp: Seconds | None = None
    size: DiskSize = None
    fill: bool | None = None
    rw: Annotated[str, Field(pattern=r"^(rand)?(read|write|rw)$")] | None = None
    bs: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,6}[kKmM]?$")] | None = None
    iodepth: Annotated[int, Field(ge=1, le=4096)] | None = None
    fsync: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    rwmixread: Annotated[int, Field(ge=0, le=100)] | None = None
    distribution: (
        Annotated[str, Field(pattern=r"^(random|(zipf|pareto|normal):[0-9.]{1,6})$")] | None
    ) = None
    primary: Annotated[str, Field(pattern=r"^(iops|bandwidth)$")] | None = None


class GuestTable(StrictTable):
    """``[guest]``: a machine of the user's own, for the frontend ``own-guest``."""

    image: Annotated[str, Field(min_length=1, max_length=4096)]
    format: Annotated[str, Field(pattern=r"^(qcow2|raw|vdi|vhdx)$")] = "qcow2"
    os: Annotated[str, Field(pattern=r"^(linux|windows)$")] = "linux"
    machine: Annotated[str, Field(pattern=r"^(pc|q35)$")] = "pc"
    firmware: Annotated[str, Field(pattern=r"^(bios|uefi)$")] = "bios"
    bus: Annotated[str, Field(pattern=r"^(virtio-blk|virtio-scsi|ide|ahci|nvme)$")] = "virtio-blk"
    settle: Seconds = 10.0
    boot_timeout: Runtime = 300.0
    kernel: Annotated[str, Field(max_length=4096)] = ""
    initrd: Annotated[str, Field(max_length=4096)] = ""
    append: Annotated[str, Field(pattern=r"^[\x20-\x7e]{0,1000}$")] = ""


class BackingTable(StrictTable):
    """``[backings.NAME]``. The other keys depend on the kind: ``backing_rules`` has them."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, OptionTexts] = Field(init=False)

    kind: str = "directory"
    on: Name | None = None


class ProtocolTable(StrictTable):
    """``[protocol]``: how runs are made, and when there are enough. The keys of a race have their
    bounds in ``protocol``."""

    stop: Annotated[str, Field(pattern=r"^(blocks|decided)$")] = "blocks"
    blocks: Annotated[int, Field(ge=1, le=10_000)] | None = None
    delta: Share | None = None
    confidence: Share | None = None
    top: int | None = None
    min_blocks: int | None = None
    max_blocks: int | None = None
    seed: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    size: DiskSize = None
    runtime: Runtime = 10.0
    ramp: Seconds = 2.0
    run_timeout: Runtime = 1800.0


class CrashTable(StrictTable):
    """``[crash]``: what ``diskproof crash`` records and how long it looks for losses."""

    writers: Names = list(CrashRules.writers)
    faults: Names = list(FAULTS)
    records: Annotated[int, Field(ge=1, le=MAX_RECORDS)] = CrashRules.records
    seconds: Runtime = CrashRules.seconds
    durable: Annotated[str, Field(pattern=r"^(flush|fua|write)$")] = CrashRules.durable
    flush_every: Annotated[int, Field(ge=1, le=MAX_RECORDS)] = CrashRules.flush_every
    depth: Annotated[int, Field(ge=1, le=64)] = CrashRules.depth
    size: Annotated[DiskSize, AfterValidator(_small_disk)] = CrashRules.size
    filesystem: Annotated[str, Field(pattern=r"^(ext4|xfs|btrfs)$")] = CrashRules.filesystem
    mount: Annotated[str, Field(pattern=r"^[a-z0-9_=,.:-]{0,200}$")] = CrashRules.mount
    states: Annotated[int, Field(ge=1, le=10**9)] = CrashRules.states
    explore_seconds: Runtime = CrashRules.explore_seconds
    sector: Sector = CrashRules.sector
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = CrashRules.seed


class TilesTable(StrictTable):
    """``[tiles]``: groups of guests, and how the largest number of them is looked for."""

    tile: Annotated[str, Field(min_length=1, max_length=4096)] = BUILT_IN
    scale: Annotated[str, Field(pattern=f"^({SCALE})$")] = "1"
    most: Tiles = TileRules.most
    runs: Annotated[int, Field(ge=1, le=1000)] = TileRules.runs
    counts: Annotated[list[Tiles], Field(min_length=1, max_length=100)] | None = None
    service_level: Annotated[float, Field(gt=1, le=1000)] = TileRules.service_level
    ksm: Levels = list(TileRules.ksm)
    share: Levels = list(TileRules.share)
    network: Annotated[str, Field(pattern=f"^({'|'.join(NETWORKS)})$")] = TileRules.network


class StudyTable(StrictTable):
    """The whole file."""

    name: Name | None = None
    description: Annotated[str, Field(max_length=10_000)] = ""
    workloads: Annotated[dict[Name, WorkloadTable], BeforeValidator(_by_name)] = Field(
        min_length=1, default={"rand-read-4k-d32": WorkloadTable()}
    )
    factors: dict[str, Levels] = {}
    backings: dict[Name, BackingTable] = {}
    guest: GuestTable | None = None
    only: list[dict[str, Levels]] = []
    exclude: list[dict[str, Levels]] = []
    protocol: ProtocolTable = ProtocolTable()
    crash: CrashTable = CrashTable()
    tiles: TilesTable | None = None


_KEYS: dict[str, type[BaseModel]] = {
    "workloads": WorkloadTable,
    "backings": BackingTable,
    "guest": GuestTable,
    "protocol": ProtocolTable,
    "crash": CrashTable,
    "tiles": TilesTable,
}


def known_keys(location: tuple[Any, ...]) -> list[str]:
    """The keys that the table around ``location`` knows, to suggest one for a wrong one."""
    model = StudyTable if len(location) == 1 else _KEYS.get(str(location[0]), StudyTable)
    return list(model.model_fields)
