"""Study and host facts to cells: what means nothing collapses, what cannot work is dropped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from diskproof.errors import HostError, StudyError
from diskproof.factors import FACTORS, Factor
from diskproof.records import Cell, Dropped, HostFacts, WorkloadSpec
from diskproof.study import Study
from diskproof.units import render_bytes

MAX_COMBINATIONS = 200_000
SIZE_FLOOR = 1 << 30
DIRECT = frozenset({"none", "directsync"})
FREE_MARGIN = 256 << 20

Levels = dict[str, str]
Rule = Callable[[Mapping[str, str], HostFacts], str | None]


@dataclass(frozen=True)
class Plan:
    """What will be measured. ``size`` is the disk's in bytes, ``needed_bytes`` what a backing
    must have free at the peak: one image, and the data it is filled from."""

    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    needed_bytes: int


def make_plan(study: Study, facts: HostFacts) -> Plan:
    """Cells of a study on a host. Pure.

    Raises StudyError when nothing is left to measure or the matrix is too large, HostError when
    the disk does not fit on a backing.
    """
    kept, drops = _select(study, facts)
    if not kept:
        raise StudyError(f"study {study.name!r} leaves nothing to measure", *_why_empty(drops))
    workloads = {w.name: _sized(w, kept, facts) for w in study.workloads}
    cells = (Cell(tuple(sorted(levels.items())), workloads[name]) for levels, name in kept)
    unique = tuple({cell.id: cell for cell in cells}.values())
    needed = _needed_bytes(workloads.values())
    _require_space(needed, unique, facts)
    return Plan(unique, drops.as_records(), _warnings(unique, facts), needed)


def _select(study: Study, facts: HostFacts) -> tuple[list[tuple[Levels, str]], _Drops]:
    """Combinations to keep, each with the names of its workloads, and what was dropped."""
    drops = _Drops()
    kept: list[tuple[Levels, str]] = []
    names = [workload.name for workload in study.workloads]
    for levels in _combinations(study, facts):
        reason = _reason_against(levels, facts)
        for name in names:
            if any(each.matches(levels, name) for each in study.exclude):
                drops.add("excluded by the study", levels)
            elif study.only and not any(each.matches(levels, name) for each in study.only):
                drops.add("not among the study's [[only]]", levels)
            elif reason:
                drops.add(reason, levels)
            else:
                kept.append((levels, name))
    return kept, drops


class _Drops:
    """Counts dropped cells by reason, with the first as an example."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.examples: dict[str, Levels] = {}

    def add(self, reason: str, levels: Levels) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        self.examples.setdefault(reason, levels)

    def as_records(self) -> tuple[Dropped, ...]:
        return tuple(
            Dropped(reason, count, tuple(sorted(self.examples[reason].items())))
            for reason, count in sorted(self.counts.items(), key=lambda item: -item[1])
        )


# -- combinations ---------------------------------------------------------------------------


def _combinations(study: Study, facts: HostFacts) -> Iterator[Levels]:
    """Every combination of the factors that mean something to its frontend and format."""
    groups = list(_axis_groups(study, facts))
    total = sum(math.prod(len(levels) for levels in axes.values()) for axes in groups)
    if total * len(study.workloads) > MAX_COMBINATIONS:
        raise StudyError(
            f"study {study.name!r} has {total * len(study.workloads):,} combinations",
            f"at most {MAX_COMBINATIONS:,} can be planned",
            "name fewer levels, or split the study",
        )
    for axes in groups:
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))


def _axis_groups(study: Study, facts: HostFacts) -> Iterator[dict[str, tuple[str, ...]]]:
    by_name = {factor.name: factor for factor in FACTORS}
    for frontend in study.levels(by_name["frontend"]):
        formats = study.levels(by_name["format"]) if frontend != "host" else ("",)
        for image_format in formats:
            yield {
                factor.name: _axis(factor, frontend, image_format, study, facts)
                for factor in FACTORS
                if frontend in factor.frontends
                and (not factor.formats or image_format in factor.formats)
            }


def _axis(
    factor: Factor, frontend: str, image_format: str, study: Study, facts: HostFacts
) -> tuple[str, ...]:
    if factor.name == "frontend":
        return (frontend,)
    if factor.name == "format":
        return (image_format,)
    levels = study.levels(factor)
    if factor.name == "accel":
        levels = tuple(facts.accel if level == "auto" else level for level in levels)
    return tuple(dict.fromkeys(levels))


# -- what cannot work -----------------------------------------------------------------------


def _aio_needs_direct(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    if levels.get("aio") == "native" and levels["cache"] not in DIRECT:
        return f"aio=native needs direct I/O, which cache={levels['cache']} does not use"
    return None


def _preallocation_of_format(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    mode = levels.get("preallocation", "off")
    if levels.get("format") == "qed" and mode != "off":
        return "qed has no preallocation"
    if levels.get("format") == "raw" and mode == "metadata":
        return "raw has no metadata to preallocate"
    return None


def _directory_takes_direct(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    backing = facts.backings[levels["backing"]]
    if levels.get("cache") in DIRECT and not backing.o_direct:
        return f"cache={levels['cache']} needs O_DIRECT: {backing.o_direct_reason}"
    return None


def _zeroes_need_discard(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    if levels.get("detect-zeroes") == "unmap" and levels["discard"] != "unmap":
        return "detect-zeroes=unmap needs discard=unmap"
    return None


def _iothread_of_bus(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    bus = levels.get("bus")
    if levels.get("iothread") == "on" and bus and bus not in facts.iothread_buses:
        return f"bus={bus} takes no iothread in this QEMU"
    return None


def _write_through_of_bus(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    if levels.get("bus") == "nvme" and levels["cache"] in ("writethrough", "directsync"):
        return "QEMU's nvme device has no write-through mode"
    return None


def _accel_of_host(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    if levels.get("accel") == "kvm" and facts.accel != "kvm":
        return f"accel=kvm does not work here: {facts.accel_reason}"
    return None


def _levels_of_host(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    for factor, usable in (
        ("frontend", facts.frontends),
        ("format", facts.formats),
        ("aio", facts.aio),
        ("bus", facts.buses),
    ):
        level = levels.get(factor)
        if level is not None and level not in usable:
            key = f"{factor}={level}"
            return f"{key} does not work here: {facts.reasons.get(key, 'not offered by this host')}"
    return None


RULES: tuple[Rule, ...] = (
    _preallocation_of_format,
    _aio_needs_direct,
    _directory_takes_direct,
    _zeroes_need_discard,
    _iothread_of_bus,
    _write_through_of_bus,
    _accel_of_host,
    _levels_of_host,
)


def _reason_against(levels: Mapping[str, str], facts: HostFacts) -> str | None:
    for rule in RULES:
        if reason := rule(levels, facts):
            return reason
    return None


def _why_empty(drops: _Drops) -> tuple[str, str]:
    lines = [f"{count} cells: {reason}" for reason, count in drops.counts.items()]
    return "; ".join(lines[:6]), "change the factors or the filters"


# -- sizes ----------------------------------------------------------------------------------


def passes_host_cache(levels: Mapping[str, str], facts: HostFacts) -> bool:
    """True when the host's page cache lies between the load and the disk."""
    if levels["frontend"] == "host":
        return not facts.backings[levels["backing"]].o_direct
    return levels["cache"] not in DIRECT


def _sized(
    workload: WorkloadSpec, kept: list[tuple[Levels, str]], facts: HostFacts
) -> WorkloadSpec:
    """The workload with its disk size in bytes; ``auto`` is one size for all cells."""
    options = dict(workload.options)
    if options["size"] == "auto":
        cached = any(passes_host_cache(levels, facts) for levels, _ in kept)
        size = max(SIZE_FLOOR, 2 * facts.memory_bytes if cached else 0)
        options["size"] = str(-(-size // (1 << 20)) << 20)
    return replace(workload, options=tuple(sorted(options.items())))


def _needed_bytes(workloads: Iterable[WorkloadSpec]) -> int:
    """One image at a time with its metadata, the fill source beside it where one is used."""
    peak = 0
    for spec in workloads:
        size = int(spec.option("size"))
        peak = max(peak, size + size // 50 + (size if spec.option("fill") == "on" else 0))
    return peak + FREE_MARGIN


def _require_space(needed: int, cells: tuple[Cell, ...], facts: HostFacts) -> None:
    for name in dict.fromkeys(cell.level("backing") for cell in cells):
        backing = facts.backings[name]
        if backing.free_bytes < needed:
            raise HostError(
                f"the disk under test does not fit on {backing.path}",
                f"{render_bytes(needed)} are needed at the peak, "
                f"{render_bytes(backing.free_bytes)} are free",
                "set a smaller [protocol] size, or a [backings.NAME] path with more room",
            )


def _warnings(cells: tuple[Cell, ...], facts: HostFacts) -> tuple[str, ...]:
    """What the host's memory can hold of a disk that is smaller than twice that memory."""
    found: dict[tuple[str, str], None] = {}
    for cell in cells:
        size = int(cell.workload.option("size"))
        levels = cell.levels_dict()
        if size < 2 * facts.memory_bytes and passes_host_cache(levels, facts):
            found.setdefault((render_bytes(size), cell.level("cache", "the host baseline")))
    by_size: dict[str, list[str]] = {}
    for size_text, cache in found:
        by_size.setdefault(size_text, []).append(cache)
    return tuple(
        f"the disk ({size_text}) is smaller than twice the host's memory "
        f"({render_bytes(facts.memory_bytes)}): with cache {', '.join(sorted(caches))} the page "
        "cache can hold all of it, so re-reads are served from memory and writes may still be "
        "there when the run ends"
        for size_text, caches in by_size.items()
    )


# -- estimates ------------------------------------------------------------------------------

FILL_BYTES_PER_SECOND = 400e6
START_SECONDS = {"host": 0.3, "daemon": 0.7, "guest": 4.0}
TCG_BOOT_SECONDS = 6.0


def estimate_seconds(cell: Cell) -> float:
    """Expected length of one run before any was measured."""
    spec = cell.workload
    fill = int(spec.option("size", "0")) / FILL_BYTES_PER_SECOND
    boot = TCG_BOOT_SECONDS if cell.level("accel") == "tcg" else 0.0
    return (
        float(spec.option("runtime", "0"))
        + float(spec.option("ramp", "0"))
        + START_SECONDS[cell.level("frontend")]
        + boot
        + (fill if spec.option("fill") == "on" else 0.0)
    )
