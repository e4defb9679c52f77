"""What managers of virtual machines give a new disk, as points beside a study's matrix."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from diskproof.advice.dialect import Dialect, Target
from diskproof.records import BackingFacts, BackingSpec, Cell, Dropped, HostFacts
from diskproof.study.factors import FACTOR_BY_NAME, FACTORS
from diskproof.study.like import FRONTENDS, GUESTS, MANAGERS, DiskDefault
from diskproof.study.load import Filter, Study

SPOKEN = {"virt-manager": "virt-install"}
"""Managers that another one's dialect speaks for: both make disks with the same library."""

_PLACES = {name: place for place, name in enumerate(FACTOR_BY_NAME)}
Levels = tuple[tuple[str, str], ...]
Axes = Mapping[str, tuple[str, ...]]


def dialect_of(manager: str) -> Dialect:
    from diskproof.advice.dialects import require_dialect  # all of them: most plans need none

    return require_dialect(SPOKEN.get(manager, manager))


def disk_default(manager: str, spec: BackingSpec, facts: BackingFacts) -> DiskDefault | None:
    """What a manager gives a new disk there; None where it is not known: over a network that is
    decided by what serves it."""
    if facts.network:
        return None
    dialect = dialect_of(manager)
    given = dialect.defaults(
        Target(block=facts.device, filesystem=_filesystem(spec, facts), direct=facts.o_direct)
    )
    levels = tuple((name, given[name]) for name in FACTOR_BY_NAME if name in given)
    return DiskDefault(manager, dialect.version, spec.name, levels, dialect.source)


def _filesystem(spec: BackingSpec, facts: BackingFacts) -> str:
    """Where the disk lies, in the word that managers have for it: ``ext4``, ``zfs``, ``lvm``."""
    if spec.kind == "lvm":
        return "lvmthin" if spec.option("type") == "thin" else "lvm"
    return spec.option("fs") or facts.filesystem.partition(" ")[0].lower()


def find_like(study: Study, facts: HostFacts) -> tuple[tuple[DiskDefault, ...], list[Dropped]]:
    """The defaults that the study asks for, on each of its backings, and which there are not."""
    found, missing = [], []
    for manager, spec in itertools.product(study.like, _disk_backings(study)):
        where = facts.backings[spec.name]
        if default := disk_default(manager, spec, where):
            found.append(default)
            continue
        why = f"what {manager} gives a disk over {where.network} is not known"
        missing.append(Dropped(why, len(study.workloads), (("backing", spec.name),)))
    return tuple(found), missing


def _disk_backings(study: Study) -> list[BackingSpec]:
    """Where disks under test are; a study has others for what is copied from."""
    names = study.levels(FACTOR_BY_NAME["backing"])
    return [spec for spec in study.backings if spec.name in names]


def like_axes(
    study: Study, defaults: Iterable[DiskDefault], facts: HostFacts
) -> Iterator[tuple[DiskDefault, Axes]]:
    """Each default on each frontend that it means something to, as axes of one level each: what
    the manager does not decide is at the study's first level."""
    for default in defaults:
        for frontend in study.levels(FACTOR_BY_NAME["frontend"]):
            if frontend not in FRONTENDS:
                continue
            levels = {factor.name: study.levels(factor)[0] for factor in FACTORS}
            if levels["accel"] == "auto":
                levels["accel"] = facts.accel
            levels |= default.levels_in(frontend)
            levels |= {"frontend": frontend, "backing": default.backing}
            yield (
                default,
                {
                    factor.name: (levels[factor.name],)
                    for factor in FACTORS
                    if frontend in factor.frontends
                    and (not factor.formats or levels["format"] in factor.formats)
                },
            )


def without_decided(only: Filter, default: DiskDefault) -> Filter:
    """``[[only]]`` for a default: a condition on what the manager decides was meant for the
    matrix, and falls away."""
    decided = dict(default.levels)
    return Filter(tuple((name, levels) for name, levels in only.levels if name not in decided))


def find_whole(
    study: Study, kept: Collection[tuple[Levels, str]], facts: HostFacts
) -> Iterator[DiskDefault]:
    """Of a study that asks for none: the defaults that some guest's disk in it is with all that
    its manager decides."""
    guests = GUESTS & {*study.levels(FACTOR_BY_NAME["frontend"])}
    specs = _disk_backings(study) if guests else []
    disks: list[frozenset[tuple[str, str]]] = []
    for manager, spec in itertools.product(MANAGERS, specs):
        default = disk_default(manager, spec, facts.backings[spec.name])
        if default is None or not all(
            level in study.levels(FACTOR_BY_NAME[name]) for name, level in default.levels
        ):
            continue
        disks = disks or [*map(frozenset, dict.fromkeys(levels for levels, _ in kept))]
        there = {*default.levels, ("backing", spec.name)}
        whole = [there | {("frontend", frontend)} for frontend in guests]
        if any(wanted <= disk for disk in disks for wanted in whole):
            yield default


def tell_of_names(study: Study, cells: Collection[Cell], facts: HostFacts) -> Iterator[str]:
    """The defaults that cells are named after, as the sentences that are stored."""
    named = {(name, cell.level("backing")) for cell in cells for name in cell.names}
    for manager, spec in itertools.product(MANAGERS, _disk_backings(study)):
        default = disk_default(manager, spec, facts.backings[spec.name])
        if default and (default.name, spec.name) in named:
            yield default.sentence


def find_owners(
    study: Study, cells: Iterable[Cell], facts: HostFacts
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Of the levels that disks have, those that are some manager's default, with its managers:
    ``("cache", "none")`` -> ``proxmox``, or ``proxmox on lv`` where it is so on some backings."""
    specs = {spec.name: spec for spec in _disk_backings(study)}
    there = {
        (cell.level("frontend"), cell.level("backing"), *pair)
        for cell in cells
        for pair in cell.levels
    }
    owners: dict[tuple[str, str], dict[str, list[str]]] = {}
    for manager, name in itertools.product(MANAGERS, specs):
        default = disk_default(manager, specs[name], facts.backings[name])
        meant = (
            [(f, pair) for f in FRONTENDS for pair in default.levels_in(f).items()]
            if default
            else []
        )
        for pair in dict.fromkeys(pair for f, pair in meant if (f, name, *pair) in there):
            owners.setdefault(pair, {}).setdefault(manager, []).append(name)
    return {
        pair: tuple(
            manager if len(where) == len(specs) else f"{manager} on {' '.join(where)}"
            for manager, where in of_pair.items()
        )
        for pair, of_pair in sorted(owners.items(), key=lambda each: _PLACES[each[0][0]])
    }
