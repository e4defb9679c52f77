"""How large the disk under test is, what caches could hold of it, and whether it fits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from diskproof.errors import HostError
from diskproof.records import Cell, HostFacts, WorkloadSpec
from diskproof.study.boots import disk_bytes, parse_scale
from diskproof.study.factors import DIRECT
from diskproof.study.ground import Ground
from diskproof.study.programs import SECOND_DISK_ON, has_own_system
from diskproof.units import MIB, parse_bytes, render_bytes

SIZE_FLOOR = 1 << 30
FREE_MARGIN = 256 << 20

Levels = tuple[tuple[str, str], ...]


def host_cache_bytes(levels: Mapping[str, str], facts: HostFacts) -> int:
    """Host memory that can hold the disk; 0 when its page cache is not between load and disk."""
    if "cache" in levels:
        direct = levels["cache"] in DIRECT
    else:  # fio on the disk itself
        direct = facts.backings[levels["backing"]].o_direct
    return 0 if direct else facts.memory_bytes


def guest_cache_bytes(levels: Mapping[str, str], workload: WorkloadSpec) -> int:
    """Guest memory that can hold the disk. Our own loads use direct I/O in the guest; what a
    user's job file does is not known, so it is taken to go through the guest's page cache."""
    if levels["frontend"] not in ("guest", "own-guest") or workload.kind == "fio":
        return 0
    return parse_bytes(levels["memory"])


def resolved_workloads(
    workloads: Sequence[WorkloadSpec], kept: Iterable[tuple[Levels, str]], facts: HostFacts
) -> dict[str, WorkloadSpec]:
    """The workloads with their disk size in bytes.

    ``auto`` is twice the memory that could cache the disk of any cell (source: the rule for
    iozone and dd of at least twice the RAM), one size for all cells so that they compare.
    """
    by_name = {workload.name: workload for workload in workloads}
    cached = 0
    for levels, name in kept:
        table = dict(levels)
        memory = host_cache_bytes(table, facts) + guest_cache_bytes(table, by_name[name])
        cached = max(cached, memory)
    size = -(-max(SIZE_FLOOR, 2 * cached) // MIB) * MIB
    return {name: _with_size(workload, size) for name, workload in by_name.items()}


def _with_size(workload: WorkloadSpec, size: int) -> WorkloadSpec:
    options = dict(workload.options)
    if options["size"] == "auto":
        own = has_own_system(workload.kind)
        options["size"] = str(disk_bytes(parse_scale(options["scale"])) if own else size)
    return replace(workload, options=tuple(sorted(options.items())))


def needed_bytes(workloads: Iterable[WorkloadSpec]) -> int:
    """One image at a time with 2 % for its metadata, beside the fill source where one is used."""
    peak = 0
    for spec in workloads:
        size = int(spec.option("size"))
        peak = max(peak, size + size // 50 + (size if spec.option("fill") == "on" else 0))
    return peak + FREE_MARGIN


def require_space(needed: int, cells: Iterable[Cell], facts: HostFacts) -> None:
    """Raises HostError when the images of a cell do not fit on a backing that is used."""
    disks: dict[str, int] = {}
    for cell in cells:
        places = [cell.level("backing"), *filter(None, [cell.workload.option(SECOND_DISK_ON)])]
        for name in places:
            disks[name] = max(disks.get(name, 0), places.count(name))
    for name, count in disks.items():
        backing = facts.backings[name]
        if backing.free_bytes < count * needed:
            raise HostError(
                f"the disk under test does not fit on {backing.path}",
                f"{render_bytes(count * needed)} are needed at the peak, "
                f"{render_bytes(backing.free_bytes)} are free",
                "set a smaller [protocol] size, or a [backings.NAME] path with more room",
            )


def warn_of_caches(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """What memory can hold of a disk that is smaller than twice that memory."""
    by_memory: dict[tuple[int, str, int], set[str]] = {}
    for cell in cells:
        size, levels = int(cell.workload.option("size")), cell.levels_dict()
        for owner, memory in (
            ("host", host_cache_bytes(levels, facts)),
            ("guest", guest_cache_bytes(levels, cell.workload)),
        ):
            if size < 2 * memory:
                what = levels.get("cache", "of the host baseline")
                by_memory.setdefault((size, owner, memory), set()).add(what)
    for (size, owner, memory), caches in by_memory.items():
        yield (
            f"the disk ({render_bytes(size)}) is smaller than twice the {owner}'s memory "
            f"({render_bytes(memory)}): with cache {', '.join(sorted(caches))} the {owner}'s page "
            "cache can hold all of it, so re-reads are served from memory and writes may still "
            "be there when the run ends"
        )


def tell_of_backings(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """What they lie on; what was seen of a server's flushes, and what could not be seen without
    destroying data."""
    used = tuple(dict.fromkeys(cell.level("backing") for cell in cells))
    for name in used:
        backing = facts.backings[name]
        if backing.ground:
            yield Ground(name, backing.ground + _tell_of_sharing(name, used, facts)).sentence
        yield from filter(None, [backing.unprobed])
        if backing.flushes:
            yield f"the server of backing {name}: {backing.flushes}"


def warn_of_discard(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """Where each run waits for the disk to trim the image that it removes."""
    used = dict.fromkeys(cell.level("backing") for cell in cells)
    if names := [name for name in used if facts.backings[name].trims]:
        yield (
            f"mounted with discard: backing {', '.join(names)}. Each run waits until the image "
            "that it removes is trimmed, a fragmented one for seconds; mounted without it, fstrim "
            "does the same later"
        )


def _tell_of_sharing(name: str, names: Sequence[str], facts: HostFacts) -> str:
    """With which other backings of the study it has a disk in common."""
    mine = set(facts.backings[name].disks)
    others = [each for each in names if each != name and mine & set(facts.backings[each].disks)]
    return f", shared with backing {', '.join(others)}" if others else ""


def warn_of_emulation(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """That guests are slow here, and why."""
    if any(cell.level("accel") == "tcg" for cell in cells):
        why = facts.accel_reason if facts.accel == "tcg" else "the study asks for it"
        yield f"guests run under TCG emulation, not KVM: {why}"
