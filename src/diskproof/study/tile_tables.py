"""The shape of a tile's file, and of a study's ``[tiles]`` table: keys, types and bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints

from diskproof.study.file import Name, OptionText, Runtime, StrictTable
from diskproof.units import MIB, parse_bytes


def _bytes(value: object) -> int:
    size = parse_bytes(value) if isinstance(value, str | int) else 0
    if size % MIB:
        raise ValueError(f"{value!r} is not a whole number of MiB")
    return size


Memory = Annotated[int, BeforeValidator(_bytes), Field(ge=192 * MIB, le=1 << 40)]
Disk = Annotated[int, BeforeValidator(_bytes), Field(ge=16 * MIB, le=1 << 44)]
GuestName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
Argv = Annotated[list[OptionText], Field(min_length=1, max_length=100)]


class TileGuestTable(StrictTable):
    """``[guests.NAME]``. What is not said is as the role has it."""

    role: str = "plain"
    root: Annotated[str, Field(pattern=r"^(|postgres|servers)$")] | None = None
    memory: Memory | None = None
    vcpus: Annotated[int, Field(ge=1, le=64)] = 1
    disk: Disk | None = None


class WorkTable(StrictTable):
    """``[workloads.NAME]``: a load with its own keys (``tiles.LOADS``), or a command."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, OptionText] = Field(init=False)

    load: str | None = None
    source: GuestName = Field(alias="from")
    to: GuestName | None = None
    command: Argv | None = None
    check: Argv | None = None
    after: Annotated[list[Name], Field(max_length=100)] = []
    timeout: Runtime = 3600.0
    service_level: Annotated[float, Field(gt=1, le=1000)] | None = None


class TileTable(StrictTable):
    """The whole file."""

    name: Name | None = None
    description: Annotated[str, Field(max_length=10_000)] = ""
    guests: Annotated[dict[GuestName, TileGuestTable], Field(min_length=1)]
    workloads: Annotated[dict[Name, WorkTable], Field(min_length=1, max_length=100)]
