"""The cells of a tile study: the same factors and filters, with a tile in place of loads."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from diskproof.errors import HostError
from diskproof.plan import tile_costs
from diskproof.plan.crash import keep_conditions, keep_filters
from diskproof.plan.like import Levels, tell_of_names
from diskproof.plan.select import select
from diskproof.plan.sizes import FREE_MARGIN, tell_of_backings, warn_of_emulation
from diskproof.records import BackingFacts, Cell, Dropped, HostFacts, WorkloadSpec, canonical_json
from diskproof.study.load import Filter, Study
from diskproof.study.tile_file import built_in_tile
from diskproof.study.tiles import KIND, Tile, TileRules
from diskproof.units import render_bytes

GUEST = "guest"
OF_THE_TILE = ("memory", "vcpus")
"""Factors of a study that mean nothing here: each guest of a tile has its own."""

RESERVED = ("falloc", "full")


@dataclass(frozen=True)
class TilePlan:
    """What ``diskproof tiles`` will run. ``rules`` are the study's, with ``most`` and ``counts``
    cut to what the host's memory holds. ``seconds`` is for all runs at most, ``needed_bytes``
    what the disks of the most tiles can grow to."""

    rules: TileRules
    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    needed_bytes: int
    seconds: float

    @property
    def runs(self) -> int:
        """Runs of all cells at most."""
        return len(self.cells) * sum(runs for _, runs in tile_costs.planned_runs(self.rules))


def tile_rules(study: Study) -> TileRules:
    """``[tiles]`` of the study, or the tile of the article at its full size."""
    return study.tiles or TileRules(built_in_tile())


def make_tile_plan(study: Study, facts: HostFacts, memory: int | None = None) -> TilePlan:
    """Cells of a study's tile on a host that has ``memory`` bytes to give (None: all it has). Pure.

    Raises StudyError when nothing is left, HostError when not even one tile fits into the memory
    or on a backing.
    """
    rules = tile_rules(study)
    room = facts.memory_bytes if memory is None else memory
    accel = _slowest_accel(study, facts)
    fitting = tile_costs.count_fitting(rules.tile, room, accel)
    tile_costs.require_memory(rules.tile, room, accel)
    bounded = _bound(rules, fitting)
    narrowed = select(_narrow(study, rules.tile), facts)
    selection = narrowed.without(lambda levels, _: _obstacle(levels, facts))
    hint = "change the factors or the filters; a tile's guests are always frontend=guest"
    selection.require_some(study.name, "no tile to run", hint)
    cells = selection.named(_cells((levels for levels, _ in selection.kept), rules))
    _require_space(rules.tile, cells, facts)
    return TilePlan(
        rules=bounded,
        cells=cells,
        dropped=selection.dropped,
        warnings=(
            *tell_of_names(study, cells, facts),
            *_warnings(rules, bounded, cells, facts, room),
        ),
        needed_bytes=tile_costs.most_tiles(bounded) * rules.tile.disk,
        seconds=sum(map(tile_costs.TileCosts(bounded, facts.cpus).expect_cell, cells)),
    )


def tile_workload(rules: TileRules) -> WorkloadSpec:
    """The tile as a workload: all that shapes its runs and how they are judged."""
    options = {
        "tile": canonical_json(dataclasses.asdict(rules.tile)),
        "scale": str(rules.scale),
        "service_level": f"{rules.service_level:g}",
        "network": rules.network,
    }
    return WorkloadSpec(rules.tile.name, KIND, tuple(sorted(options.items())))


# -- memory and room ------------------------------------------------------------------------


def _bound(rules: TileRules, fitting: int) -> TileRules:
    """The rules with 1 as what all is compared with, and no more tiles than memory holds."""
    counts = tuple(sorted({1, *rules.counts})) if rules.counts else ()
    counts = tuple(count for count in counts if count <= max(1, fitting))
    return replace(rules, most=min(rules.most, max(1, fitting)), counts=counts)


def _require_space(tile: Tile, cells: Iterable[Cell], facts: HostFacts) -> None:
    """Raises HostError when one tile's disks do not fit where they are reserved as a whole."""
    for cell in cells:
        backing = facts.backings[cell.level("backing")]
        reserved = cell.level("preallocation", "off") in RESERVED
        needed = FREE_MARGIN + (tile.disk + tile.disk // 50 if reserved else 0)
        if backing.free_bytes < needed:
            raise HostError(
                f"the disks of one tile {tile.name} do not fit on {backing.path}",
                f"{render_bytes(needed)} are needed, {render_bytes(backing.free_bytes)} are free",
                "preallocation=off, smaller disks in a tile of your own, or a [backings.NAME] "
                "path with more room",
            )


def _slowest_accel(study: Study, facts: HostFacts) -> str:
    """The accelerator of the study that takes most memory."""
    return "tcg" if "tcg" in dict(study.factors).get("accel", ()) else facts.accel


def _warnings(
    rules: TileRules, bounded: TileRules, cells: Sequence[Cell], facts: HostFacts, room: int
) -> Iterator[str]:
    wanted, most = tile_costs.most_tiles(rules), tile_costs.most_tiles(bounded)
    emulation = list(warn_of_emulation(cells, facts))
    accel = "tcg" if emulation else facts.accel
    if most < wanted:
        yield (
            f"{wanted} tiles are asked for, at most {most} fit: one takes "
            f"{render_bytes(tile_costs.tile_memory(rules.tile, accel))} of {render_bytes(room)}"
        )
    if rules.counts and 1 not in rules.counts:
        yield "1 tile is run as well: all is compared with it"
    yield from emulation
    yield from tell_of_backings(cells, facts)
    grown = most * rules.tile.disk
    for backing in _used(cells, facts):
        if backing.free_bytes < grown:
            free = render_bytes(backing.free_bytes)
            what = f"the disks of {most} tile{'s' * (most > 1)} can grow to {render_bytes(grown)}"
            yield f"{what}, and {free} are free on {backing.path}"


def _used(cells: Iterable[Cell], facts: HostFacts) -> list[BackingFacts]:
    return [facts.backings[name] for name in dict.fromkeys(c.level("backing") for c in cells)]


# -- cells ----------------------------------------------------------------------------------


def _narrow(study: Study, tile: Tile) -> Study:
    """The study with guests only and the tile as its workload. Filters that are only about other
    frontends say nothing about it."""
    factors = tuple(
        (name, levels)
        for name, levels in study.factors
        if name != "frontend" and name not in OF_THE_TILE
    )
    names = {tile.name}
    only = keep_conditions(filter(_allows_guests, study.only), names)
    exclude = keep_filters(filter(_allows_guests, study.exclude), names)
    return replace(
        study,
        factors=(*factors, ("frontend", (GUEST,))),
        workloads=(WorkloadSpec(tile.name, KIND),),
        only=tuple(
            Filter(tuple((name, levels) for name, levels in each.levels if name not in OF_THE_TILE))
            for each in only
        ),
        exclude=tuple(e for e in exclude if not any(name in OF_THE_TILE for name, _ in e.levels)),
    )


def _allows_guests(each: Filter) -> bool:
    return GUEST in dict(each.levels).get("frontend", {GUEST})


def _obstacle(levels: Levels, facts: HostFacts) -> str:
    backing = dict(levels)["backing"]
    if network := facts.backings[backing].network:
        return f"the guests of a tile have a disk each, and backing {backing} is one over {network}"
    if facts.backings[backing].device:
        return f"the guests of a tile have a disk each, and backing {backing} is one block device"
    return ""


def _cells(kept: Iterable[Levels], rules: TileRules) -> Iterator[Cell]:
    """Each combination with every level of KSM and share that means something to the tile."""
    shares = any(guest.role == "file-server" for guest in rules.tile.guests)
    workload = tile_workload(rules)
    for levels in kept:
        plain = tuple(each for each in levels if each[0] not in OF_THE_TILE)
        for merged in rules.ksm or ("",):
            for share in rules.share if shares else ("",):
                more = [("ksm", merged)] * bool(merged) + [("share", share)] * bool(share)
                yield Cell(tuple(sorted((*plain, *more))), workload)
