"""How large the disk under test is, what caches could hold of it, and whether it fits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from diskproof.errors import HostError
from diskproof.records import BackingFacts, Cell, HostFacts, WorkloadSpec
from diskproof.study.boots import disk_bytes, parse_scale
from diskproof.study.factors import DIRECT, count_processors
from diskproof.study.ground import Ground
from diskproof.study.programs import SECOND_DISK_ON, has_own_system
from diskproof.study.workloads import CACHE_LIMIT
from diskproof.units import MIB, parse_bytes, render_bytes, render_seconds

SIZE_FLOOR = 4 << 30
"""Twice the 2 GiB that a RAID controller's cache commonly has; more than the DRAM of an SSD. What
an SSD writes to flash in a faster way first (SLC) is larger, and no size of hours defeats it."""
CACHE_BYTES = 1 << 30
"""Page cache of a run that is bounded."""
QEMU_BYTES = 256 << 20
"""QEMU's own memory beside its guest's."""
LEAST_BYTES = 16 << 20
"""The smallest disk that a study may ask for."""
_OWN_CACHE = ("zfs", "fuse")
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


@dataclass(frozen=True)
class ChosenSize:
    """What ``auto`` is: bytes of the disk, and of the memory that a run may have, page cache
    included (0: what the host has)."""

    size: int
    cache_limit: int = 0


def choose_size(
    workloads: Sequence[WorkloadSpec], kept: Iterable[tuple[Levels, str]], facts: HostFacts
) -> ChosenSize:
    """One size for all cells, so that they compare: at least twice the memory that could cache the
    disk of any of them (source: the rule for iozone and dd of at least twice the RAM).

    Without a page cache in between that is a disk's own, so ``SIZE_FLOOR`` does. Where the page
    cache can be bounded it is, to ``CACHE_BYTES`` beside what a guest takes; else the memory is
    the host's.
    """
    by_name = {workload.name: workload for workload in workloads}
    cached = bound = 0
    for levels, name in kept:
        table, workload = dict(levels), by_name[name]
        if workload.option("size") != "auto" or has_own_system(workload.kind):
            continue
        guest, host = guest_cache_bytes(table, workload), host_cache_bytes(table, facts)
        if host and _can_bound(table, facts):
            host = CACHE_BYTES + _guest_bytes(table)
            bound = max(bound, host)
        cached = max(cached, host + guest)
    return ChosenSize(-(-max(SIZE_FLOOR, 2 * cached) // MIB) * MIB, bound)


def _can_bound(levels: Mapping[str, str], facts: HostFacts) -> bool:
    """Whether one page cache, and one of ours, is all that holds the disk: what the study makes on
    files has a second one below, a server and ZFS have their own."""
    backing = facts.backings[levels["backing"]]
    foreign = backing.own or backing.network or backing.filesystem.startswith(_OWN_CACHE)
    return facts.bounds_caches and not foreign


def _guest_bytes(levels: Mapping[str, str]) -> int:
    """Memory that a cell's guest and its QEMU take, which is no cache of the host's."""
    guest = levels["frontend"] in ("guest", "own-guest")
    return parse_bytes(levels["memory"]) + QEMU_BYTES if guest else 0


def resolve_workloads(
    workloads: Sequence[WorkloadSpec], chosen: ChosenSize
) -> dict[str, WorkloadSpec]:
    """The workloads by name, with their disk size in bytes."""
    return {workload.name: _with_size(workload, chosen) for workload in workloads}


def _with_size(workload: WorkloadSpec, chosen: ChosenSize) -> WorkloadSpec:
    options = dict(workload.options)
    if options["size"] == "auto" and has_own_system(workload.kind):
        options["size"] = str(disk_bytes(parse_scale(options["scale"])))
    elif options["size"] == "auto":
        options["size"] = str(chosen.size)
        if chosen.cache_limit:
            options[CACHE_LIMIT] = str(chosen.cache_limit)
    return replace(workload, options=tuple(sorted(options.items())))


def find_misfit(workload: WorkloadSpec) -> str:
    """Why a load cannot be run on a disk of its size; empty where it can. A size of several blocks
    (``4k-64k``) and a job file's are fio's to judge."""
    size, block = int(workload.option("size")), workload.option("bs")
    if not block.rstrip("kKmM").isdecimal() or parse_bytes(block) <= size:
        return ""
    return f"{workload.name} has blocks of {block}, and the disk is of {render_bytes(size)}"


def needed_bytes(workloads: Iterable[WorkloadSpec]) -> int:
    """One image at a time with 2 % for its metadata, beside the fill source where one is used."""
    peak = 0
    for spec in workloads:
        size = int(spec.option("size"))
        peak = max(peak, size + size // 50 + (size if spec.option("fill") == "on" else 0))
    return peak + FREE_MARGIN


def find_obstacle(
    needed: int, cells: Sequence[Cell], facts: HostFacts, cure: Callable[[int, str], str]
) -> HostError | None:
    """Why the images of a cell do not fit on a backing that is used. ``cure`` tells what would: of
    the bytes that one disk has, and of what gives it more."""
    disks: dict[str, int] = {}
    for cell in cells:
        places = [cell.level("backing"), *filter(None, [cell.workload.option(SECOND_DISK_ON)])]
        for name in places:
            disks[name] = max(disks.get(name, 0), places.count(name))
    for name, count in disks.items():
        backing = facts.backings[name]
        if backing.free_bytes < count * needed:
            return HostError(
                f"the disk under test does not fit on {backing.path}",
                f"{render_bytes(count * needed)} are needed at the peak (of which "
                f"{render_bytes(count * FREE_MARGIN)} stay free), "
                f"{render_bytes(backing.free_bytes)} are free",
                cure(backing.free_bytes // count, _more_room(name, backing)),
            )
    return None


def _more_room(name: str, backing: BackingFacts) -> str:
    """What the study may set for a backing to have more room."""
    if backing.own:
        return f"a larger size in the [backings] table of {name}, or of what that is made on"
    return "a [backings.NAME] path with more room"


def tell_what_fits(cells: Sequence[Cell], facts: HostFacts, room: int, elsewhere: str) -> str:
    """The largest size for all loads that fits, with its price in truth."""
    filled = any(cell.workload.option("fill") == "on" for cell in cells)
    fits = (room - FREE_MARGIN) * 50 // (101 if filled else 51) // MIB * MIB
    if fits < LEAST_BYTES:
        return f"set {elsewhere}"
    caches = {memory for cell in cells if (memory := host_cache_bytes(cell.levels_dict(), facts))}
    price = "what is told of disks stays true"
    if caches and fits < 2 * max(caches):
        price = "then re-reads through the page cache, and writes to it, are those of memory"
    elif fits < SIZE_FLOOR:
        price = "a disk's own cache may then hold all of it"
    return f'[protocol] size = "{fits // MIB}MiB" fits: {price}; or set {elsewhere}'


def warn_of_caches(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """What memory can hold of a disk that is smaller than twice that memory."""
    by_memory: dict[tuple[int, str, int], set[str]] = {}
    for cell in cells:
        size, levels = int(cell.workload.option("size")), cell.levels_dict()
        limit = int(cell.workload.option(CACHE_LIMIT, "0"))
        host = host_cache_bytes(levels, facts)
        for owner, memory in (
            ("host", min(host, limit) if limit else host),
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


def warn_of_reclaim(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """Where a page cache may lose what it holds though memory is free."""
    cached = any(host_cache_bytes(cell.levels_dict(), facts) for cell in cells)
    if cached and facts.idle_seconds is not None:
        idle = render_seconds(facts.idle_seconds)
        yield (
            f"the kernel may page out what nothing touched for {idle} (DAMON): page caches may "
            "be less warm than on other hosts; `diskproof doctor` has the line that stops it"
        )


def tell_of_size(chosen: ChosenSize, cells: Sequence[Cell], facts: HostFacts) -> Iterable[str]:
    """What ``auto`` came to, where a page cache had a say in it."""
    auto = [cell for cell in cells if int(cell.workload.option("size")) == chosen.size]
    if chosen.cache_limit and any(cell.workload.option(CACHE_LIMIT) for cell in cells):
        yield (
            f"size auto: {render_bytes(chosen.size)}, and all that a run starts has "
            f"{render_bytes(chosen.cache_limit)} of memory, page cache included (proved after each "
            "run): cached cells are measured as on a host with no more to spare"
        )
    elif chosen.size > SIZE_FLOOR and any(
        host_cache_bytes(cell.levels_dict(), facts) for cell in auto
    ):
        why = facts.reasons.get("cache limit", "not tried")
        yield (
            f"size auto: {render_bytes(chosen.size)}, for the page cache has all of the host's "
            f"memory: it cannot be bounded ({why})"
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


def warn_of_processors(cells: Iterable[Cell], facts: HostFacts) -> Iterable[str]:
    """That guests have more processors than the host."""
    most = max((count_processors(dict(cell.levels)) for cell in cells), default=1)
    if most > facts.cpus:
        yield (
            f"a guest has {most} processors and the host {facts.cpus}: virtual ones that wait for "
            "each other are measured, and under TCG a guest may not come up in its time"
        )
