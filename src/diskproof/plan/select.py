"""Which combinations of levels become cells. Made for 100,000 of them in well under a second."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TypeVar

from diskproof.errors import HostError, StudyError
from diskproof.plan.like import Axes, Levels, find_like, find_whole, like_axes, without_decided
from diskproof.plan.rules import RULES, Rule, workload_rules
from diskproof.records import Cell, Dropped, HostFacts, WorkloadSpec
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME, FACTORS, CacheMode, Factor
from diskproof.study.like import DiskDefault, named
from diskproof.study.load import Filter, Study

EXCLUDED = "excluded by the study"
MAX_COMBINATIONS = 200_000
_INSTALL = re.compile(r"; apt-get install ([\w.+-]+)")

Values = tuple[str, ...]
_Values = TypeVar("_Values")


@dataclass(frozen=True)
class Selection:
    """``kept`` are (levels sorted by factor, workload name); ``matched`` the filters that did;
    ``defaults`` what managers give a new disk, where some of it may be a default."""

    kept: list[tuple[Levels, str]]
    dropped: tuple[Dropped, ...]
    matched: frozenset[Filter]
    defaults: tuple[DiskDefault, ...] = ()

    def without(self, find_obstacle: Callable[[Levels, str], str]) -> Selection:
        """What is left when what has an obstacle is dropped as well."""
        kept, drops = [], _Drops()
        for levels, workload in self.kept:
            if reason := find_obstacle(levels, workload):
                drops.add(reason, levels, lambda levels: levels)
            else:
                kept.append((levels, workload))
        return replace(self, kept=kept, dropped=(*self.dropped, *drops.as_records()))

    def as_cells(self, workloads: Mapping[str, WorkloadSpec]) -> tuple[Cell, ...]:
        """What is kept, each with the workload of its name."""
        return self.named(Cell(levels, workloads[name]) for levels, name in self.kept)

    def named(self, cells: Iterable[Cell]) -> tuple[Cell, ...]:
        """The cells, with the names of the managers that give such a disk."""
        return tuple(named(cells, self.defaults))

    def require_some(self, study: str, to_do: str, hint: str) -> None:
        """Raises StudyError when nothing is kept, HostError when a package would change that."""
        if self.kept:
            return
        reasons = dict.fromkeys(f"{each.count} cells: {each.reason}" for each in self.dropped)
        why = "; ".join(list(reasons)[:6])
        found = [_INSTALL.search(each.reason) for each in self.dropped]
        if packages := dict.fromkeys(each[1] for each in found if each):
            install = f"apt-get install {' '.join(packages)}"
            raise HostError(f"study {study!r} leaves {to_do} without: {install}", why, install)
        raise StudyError(f"study {study!r} leaves {to_do}", why, hint)


def select(study: Study, facts: HostFacts) -> Selection:
    """Every combination, kept or dropped with its reason. Raises StudyError if there are too many.

    Filters come first: what nobody asked for needs no reason why it would not work.
    """
    groups = list(_axis_groups(study, facts))
    _require_bounded(study, groups)
    kept: list[tuple[Levels, str]] = []
    drops = _Drops()
    matched: set[Filter] = set()
    for axes in groups:
        kept += _keep(study, axes, facts, matched, drops)
    found = Selection(kept, drops.as_records(), frozenset(matched))
    found = _with_defaults(study, found, facts)
    return found.without(partial(_find_twin, _first_of_twins(found.kept, facts)))


_Twin = tuple[str, Levels, CacheMode]


def _first_of_twins(kept: Iterable[tuple[Levels, str]], facts: HostFacts) -> dict[_Twin, str]:
    """The cache mode that stands for those that do the same with a disk over a network."""
    first: dict[_Twin, str] = {}
    remote = {name for name, backing in facts.backings.items() if backing.network}
    for levels, workload in kept if remote else ():
        known = dict(levels)
        if known["backing"] in remote and "cache" in known:
            first.setdefault(_twin(levels, workload), known["cache"])
    return first


def _twin(levels: Levels, workload: str) -> _Twin:
    """What is left of a cell where direct I/O, a matter of files, does not reach the server."""
    mode = CACHE_MODES[dict(levels)["cache"]]
    others = tuple(pair for pair in levels if pair[0] != "cache")
    return workload, others, replace(mode, direct=False)


def _find_twin(first: Mapping[_Twin, str], levels: Levels, workload: str) -> str:
    """Why a cell would be measured twice; empty where it would not."""
    cache = dict(levels).get("cache", "")
    same = first.get(_twin(levels, workload), cache) if cache and first else cache
    what = f"cache={cache} over a network is cache={same}, which is measured"
    return f"{what}: direct I/O is a matter of files" if same != cache else ""


def _keep(
    study: Study, axes: Axes, facts: HostFacts, matched: set[Filter], drops: _Drops
) -> Iterator[tuple[Levels, str]]:
    """The combinations of a group that are wanted and can be, with their workloads; ``matched``
    takes in the filters that did, ``drops`` the others."""
    order = sorted(range(len(axes)), key=list(axes).__getitem__)
    named = _naming(axes, order)
    find_obstacle = _obstacles(axes, facts, RULES)
    screens = [
        (w.name, _Screen(study, axes, w.name, facts), _obstacles(axes, facts, workload_rules(w)))
        for w in study.workloads
    ]
    for values in itertools.product(*axes.values()):
        obstacle = find_obstacle(values)
        for workload, screen, find_misfit in screens:
            reason = screen.refuse(values, matched) or obstacle or find_misfit(values)
            if reason:
                drops.add(reason, values, named)
            else:
                yield named(values), workload


def _with_defaults(study: Study, found: Selection, facts: HostFacts) -> Selection:
    """The selection with the managers' defaults that the study asks for, each once."""
    if not study.like:
        return replace(found, defaults=tuple(find_whole(study, found.kept, facts)))
    defaults, missing = find_like(study, facts)
    kept, matched, dropped = dict.fromkeys(found.kept), set(found.matched), [*missing]
    for default, axes in like_axes(study, defaults, facts):
        meant = tuple(without_decided(each, default) for each in study.only)
        fitting: set[Filter] = set()
        drops = _Drops(f"{default.name} default: ")
        kept |= dict.fromkeys(_keep(replace(study, only=meant), axes, facts, fitting, drops))
        matched |= fitting | {o for o, m in zip(study.only, meant, strict=True) if m in fitting}
        dropped += drops.as_records()
    return Selection(list(kept), (*found.dropped, *dropped), frozenset(matched), defaults)


def _require_bounded(study: Study, groups: list[Axes]) -> None:
    combinations = sum(math.prod(map(len, axes.values())) for axes in groups)
    total = combinations * len(study.workloads)
    if total > MAX_COMBINATIONS:
        raise StudyError(
            f"study {study.name!r} has {total:,} combinations",
            f"at most {MAX_COMBINATIONS:,} can be planned",
            "name fewer levels, or split the study",
        )


# -- axes -----------------------------------------------------------------------------------


def _axis_groups(study: Study, facts: HostFacts) -> Iterator[Axes]:
    """The factors that mean something, for each frontend, format and way to the disk (a file or
    device, or over a network); the others collapse."""
    backings = study.levels(FACTOR_BY_NAME["backing"])
    remote = tuple(name for name in backings if facts.backings[name].network)
    local = tuple(name for name in backings if name not in remote)
    for frontend in study.levels(FACTOR_BY_NAME["frontend"]):
        image = FACTOR_BY_NAME["format"]
        formats = study.levels(image) if frontend in image.frontends else ("",)
        for image_format in formats:
            for names in filter(None, (local, remote)):
                fixed = {"frontend": (frontend,), "format": (image_format,), "backing": names}
                yield {
                    factor.name: fixed.get(factor.name) or _axis(factor, study, facts)
                    for factor in FACTORS
                    if frontend in factor.frontends
                    and (not factor.formats or image_format in factor.formats)
                    and (names is local or factor.over_network)
                }


def _axis(factor: Factor, study: Study, facts: HostFacts) -> tuple[str, ...]:
    levels = study.levels(factor)
    if factor.name == "accel":
        levels = tuple(_resolve_accel(levels, facts))
    return tuple(dict.fromkeys(levels))


def _resolve_accel(levels: tuple[str, ...] | frozenset[str], facts: HostFacts) -> Iterator[str]:
    return (facts.accel if level == "auto" else level for level in levels)


def _naming(axes: Axes, order: list[int]) -> Callable[[Values], Levels]:
    names = list(axes)
    ordered = [(names[place], place) for place in order]
    return lambda values: tuple([(name, values[place]) for name, place in ordered])


# -- filters and rules, made ready for one group of axes -----------------------------------


class _Screen:
    """The study's filters for one workload, as places in a combination's values."""

    def __init__(self, study: Study, axes: Axes, workload: str, facts: HostFacts) -> None:
        self.has_only = bool(study.only)
        self.only = [ready for f in study.only if (ready := _ready(f, axes, workload, facts))]
        self.exclude = [ready for f in study.exclude if (ready := _ready(f, axes, workload, facts))]

    def refuse(self, values: Values, matched: set[Filter]) -> str:
        """Why the study does not want this combination; empty when it does."""
        for each, conditions in self.exclude:
            if all(values[place] in wanted for place, wanted in conditions):
                matched.add(each)
                return EXCLUDED
        wanted_by = [
            each
            for each, conditions in self.only
            if all(values[place] in wanted for place, wanted in conditions)
        ]
        matched.update(wanted_by)
        return "not among the study's [[only]]" if self.has_only and not wanted_by else ""


_Conditions = list[tuple[int, frozenset[str]]]


def _ready(
    each: Filter, axes: Axes, workload: str, facts: HostFacts
) -> tuple[Filter, _Conditions] | None:
    """A filter as conditions on places; None when nothing of this group can match it."""
    places = {name: place for place, name in enumerate(axes)}
    conditions = []
    for name, levels in each.levels:
        wanted = frozenset(_resolve_accel(levels, facts)) if name == "accel" else levels
        if name == "workload":
            if workload not in wanted:
                return None
        elif name not in places or wanted.isdisjoint(axes[name]):
            return None
        else:
            conditions.append((places[name], wanted))
    return each, conditions


def _obstacles(axes: Axes, facts: HostFacts, rules: tuple[Rule, ...]) -> Callable[[Values], str]:
    """The rules as look-ups: each is asked once for each combination of the factors it reads."""
    tables = [table for rule in rules if (table := _table(rule, axes, facts))]

    def find_obstacle(values: Values) -> str:
        for pick, reasons in tables:
            if reason := reasons.get(pick(values)):
                return reason
        return ""

    return find_obstacle


def _table(
    rule: Rule, axes: Axes, facts: HostFacts
) -> tuple[Callable[[Values], object], dict[object, str]] | None:
    """Reasons by the levels that the rule reads; None when it has nothing against any."""
    names = [name for name in rule.factors if name in axes]
    reasons: dict[object, str] = {}
    for levels in itertools.product(*(axes[name] for name in names)):
        if reason := rule.find(dict(zip(names, levels, strict=True)), facts):
            reasons[levels if len(names) > 1 else levels[0]] = reason
    if not reasons:
        return None
    all_names = list(axes)
    return itemgetter(*(all_names.index(name) for name in names)), reasons


class _Drops:
    """Counts dropped cells by reason, with the first as an example; ``of`` goes before reasons."""

    def __init__(self, of: str = "") -> None:
        self.of = of
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, Levels] = {}

    def add(self, reason: str, values: _Values, named: Callable[[_Values], Levels]) -> None:
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            self.examples[reason] = named(values)

    def as_records(self) -> tuple[Dropped, ...]:
        """The commonest first."""
        return tuple(
            Dropped(self.of + reason, count, self.examples[reason])
            for reason, count in self.counts.most_common()
        )
