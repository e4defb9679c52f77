"""A tile as steps: programs in guests, each with what it waits for. All that the engine knows."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol, cast

from diskproof.errors import UsageError
from diskproof.records import Metric
from diskproof.records.tiles import Phase
from diskproof.study.tiles import LOADS, ROLES, Tile, TileGuest, TileWork
from diskproof.tiles.network import ip_address


@dataclass(frozen=True)
class TileStep:
    """One program in one guest; without ``argv`` a rest of ``idle`` seconds.

    ``name`` is unique in a tile (``web.setup-php``, ``copy.there``). It starts when the steps
    ``after`` of the same phase have ended with status 0, with ``files`` (path to content) written
    and kernel ``modules`` loaded before; it is killed after ``timeout`` seconds. ``work`` is the
    workload it belongs to, empty for what a role needs.
    """

    name: str
    guest: str
    phase: Phase
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    work: str = ""
    timeout: float = 300.0
    files: Mapping[str, bytes] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    idle: float = 0.0


@dataclass(frozen=True)
class TileContext:
    """What roles and loads shape their steps by. ``share`` is smb or nfs; ``scale`` at most 1."""

    tile: Tile
    share: str
    scale: Fraction

    def scaled(self, count: int) -> int:
        """A number in proportion, at least 1."""
        return max(1, round(count * self.scale))


class Role(Protocol):
    """What a guest is."""

    def setup(self, guest: TileGuest, context: TileContext) -> tuple[TileStep, ...]:
        """The steps after which its servers answer, in order."""
        ...


class Load(Protocol):
    """What a workload does."""

    def steps(self, work: TileWork, context: TileContext) -> tuple[TileStep, ...]:
        """Its steps of all phases. Load steps that wait for no other of its own come first."""
        ...

    def read(
        self, outputs: Mapping[str, bytes], seconds: Mapping[str, float]
    ) -> tuple[Metric, ...]:
        """What its ended steps say: stdout and seconds by the name of the step. Always with
        ``seconds`` and ``throughput``. Raises RunFailure ``workload`` for a wrong result."""
        ...


def load_role(name: str) -> Role:
    """The role of that name (its module is imported only now). Raises UsageError."""
    if name not in ROLES:
        raise UsageError(f"unknown role {name!r}", f"known: {', '.join(ROLES)}")
    module = importlib.import_module(f"diskproof.tiles.roles.{name.replace('-', '_')}")
    return cast(Role, module.ROLE)


def load_load(name: str) -> Load:
    """The load of that name. Raises UsageError."""
    if name not in LOADS:
        raise UsageError(f"unknown load {name!r}", f"known: {', '.join(LOADS)}")
    return cast(Load, importlib.import_module(f"diskproof.tiles.loads.{name}").LOAD)


def tile_steps(context: TileContext) -> tuple[TileStep, ...]:
    """All steps of one tile: roles first, then workloads, each behind those it comes after."""
    steps = [
        step
        for guest in context.tile.guests
        for step in load_role(guest.role).setup(guest, context)
    ]
    last_setup = {step.guest: step.name for step in steps}
    own: dict[str, tuple[TileStep, ...]] = {
        work.name: load_load(work.load).steps(work, context) for work in context.tile.works
    }
    for work in context.tile.works:
        waits = [step.name for name in work.after for step in own[name] if step.phase == "load"]
        for step in own[work.name]:
            if step.phase == "load" and not step.after:
                step = replace(step, after=tuple(waits))
            elif step.phase == "setup" and not step.after and step.guest in last_setup:
                # The servers of its guest come first; other guests' are named by the load.
                step = replace(step, after=(last_setup[step.guest],))
            steps.append(step)
    return tuple(steps)


def host_variable(guest: str) -> str:
    """The variable in which steps find the address of a guest of their tile."""
    return f"HOST_{guest.upper().replace('-', '_')}"


def step_environment(
    tile: Tile, number: int, tiles: int, guest: str, disk: str, scale: Fraction
) -> dict[str, str]:
    """What a step finds in its environment: who it is, and where the others of its tile are."""
    places = {each.name: place for place, each in enumerate(tile.guests, 1)}
    hosts = {host_variable(name): ip_address(number, place) for name, place in places.items()}
    return {
        "TILE": str(number),
        "TILES": str(tiles),
        "SELF": ip_address(number, places[guest]),
        "DISK": disk,
        "SCALE": f"{scale}",
        **hosts,
    }
