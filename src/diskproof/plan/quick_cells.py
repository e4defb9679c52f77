"""What matters of a folder's disks to who runs virtual machines there, by what one asks first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from diskproof.advice.dialect import Dialect, Target
from diskproof.errors import HostError
from diskproof.plan.like import dialect_of
from diskproof.plan.rules import find_obstacle
from diskproof.records import HostFacts
from diskproof.records.virtual_machines import Levels
from diskproof.study.like import DiskDefault

BACKING = "here"
"""The name of the folder among a study's backings."""
CACHES = ("none", "writeback")
AIOS = ("io_uring", "native", "threads")
WORKLOADS = ("sync-write-4k", "rand-read-4k-d32", "rand-write-4k-d32", "seq-read", "seq-write")
SETTINGS = ("format", "preallocation", "cache", "aio", "discard", "detect-zeroes", "bus")
"""Those of a disk that a study names. What a manager does of I/O threads is a guest's alone."""


@dataclass(frozen=True)
class Scope:
    """Cells: the bare folder, the ``default`` of a manager and its rivals as ``disks`` of the
    storage daemon, and where guests boot the default and ``guests`` there, all under
    ``workloads``. ``what`` it has that the one before had not; it is worth its while where
    ``least_blocks`` fit."""

    default: DiskDefault
    disks: tuple[Levels, ...]
    workloads: tuple[str, ...]
    what: str = ""
    least_blocks: int = 3
    guests: tuple[Levels, ...] | None = None


class Wider(NamedTuple):
    what: str
    least_blocks: int
    changes: Mapping[str, Any]


class Rivals(NamedTuple):
    """``modes``: cache modes and ways to submit I/O; ``others``: what is asked after those."""

    modes: tuple[Levels, ...]
    others: tuple[Levels, ...]


def find_scopes(default: DiskDefault, facts: HostFacts) -> list[Scope]:
    """From the least that answers to all that matters; each has the cells of the one before.

    Raises HostError where there is nothing to choose.
    """
    rivals = find_rivals(default, facts)
    scopes = [Scope(default, rivals.modes[:1], WORKLOADS[:1])]
    for what, least, changes in _steps(default, rivals, facts):
        scopes.append(replace(scopes[-1], what=what, least_blocks=least, **changes))
    return scopes


def _steps(default: DiskDefault, rivals: Rivals, facts: HostFacts) -> Iterator[Wider]:
    """Cells that come later must be worth more blocks: few cells that are told apart say more than
    many that are not. Emulated guests are slow, and tell little of speed."""
    modes, others = rivals
    boots, kvm = "guest" in facts.frontends, facts.accel == "kvm"
    disks = modes[:1]

    def one_more(disk: Levels, least: int) -> Wider:
        nonlocal disks
        disks = (*disks, disk)
        return Wider(_settings_text(disk, default), least, {"disks": disks})

    yield Wider("random reads", 3, {"workloads": WORKLOADS[:2]})
    yield from (one_more(disk, 3) for disk in modes[1:3])
    if boots and kvm:
        yield Wider("guests", 3, {"guests": modes[:1]})
    yield from (one_more(disk, 3) for disk in modes[3:])
    yield from (one_more(disk, 5) for disk in others[:1])
    if boots and not kvm:
        yield Wider("guests", 5, {"guests": modes[:1]})
    yield Wider("random writes", 8, {"workloads": WORKLOADS[:3]})
    yield from (one_more(disk, 8) for disk in others[1:])
    if boots and kvm and modes[1:]:
        yield Wider("more guests", 8, {"guests": modes})
    yield Wider("sequential reads and writes", 8, {"workloads": WORKLOADS})


def find_rivals(default: DiskDefault, facts: HostFacts) -> Rivals:
    """Disks that keep what is flushed, and that this manager and this host can have. Raises
    HostError where there is none."""
    base = base_levels(default)
    dialect = dialect_of(default.manager)
    modes = [{**base, "cache": cache, "aio": aio} for cache in CACHES for aio in AIOS]
    modes = [disk for disk in modes if _can_be(disk, base, dialect, facts)]
    if not modes:
        raise HostError(
            f"{dialect.title} can have one kind of disk there, and there is nothing to choose",
            facts.backings[BACKING].o_direct_reason,
            "name another folder, or another manager with --for",
        )
    other = {"format": "qcow2" if base["format"] == "raw" else "raw"}
    other |= {"preallocation": "off"} if "preallocation" in base else {}
    through = {"cache": "writethrough"} | ({"aio": "threads"} if base["aio"] == "native" else {})
    changes = [other, through]
    changes += [{"detect-zeroes": "off"}] if base.get("detect-zeroes", "off") != "off" else []
    others = [{**base, **change} for change in changes]
    return Rivals(
        tuple(sorted(modes, key=lambda disk: _distance(disk, base))[:4]),
        tuple(disk for disk in others if _can_be(disk, base, dialect, facts)),
    )


def base_levels(default: DiskDefault) -> dict[str, str]:
    """The settings of the default, also those that it leaves to others."""
    given = {"format": "raw", "aio": "threads", **dict(default.levels)}
    return {name: given[name] for name in SETTINGS if name in given}


def _distance(disk: Levels, base: Levels) -> tuple[bool, int]:
    """Another cache mode alone is what one asks first, then another way to submit I/O."""
    changed = [name for name in ("cache", "aio") if disk[name] != base[name]]
    return changed != ["cache"], len(changed)


def _can_be(disk: Levels, base: Levels, dialect: Dialect, facts: HostFacts) -> bool:
    target = Target(direct=facts.backings[BACKING].o_direct)
    if disk == base or dialect.find_obstacles(disk, target):
        return False
    return not find_obstacle({**disk, "backing": BACKING, "frontend": "daemon"}, facts)


def find_missing(default: DiskDefault, facts: HostFacts) -> Iterator[str]:
    """What there cannot be of it here, whatever the budget."""
    levels = {**base_levels(default), "backing": BACKING, "frontend": "daemon"}
    if reason := find_obstacle(levels, facts):
        yield f"the default of {default.name}: {reason}"
    if reason := facts.reasons.get("frontend=guest", ""):
        yield f"guests: {reason}"


def _settings_text(disk: Levels, default: DiskDefault) -> str:
    """What is not as the manager has it."""
    base = base_levels(default)
    changed = {k: v for k, v in disk.items() if base.get(k) != v and k != "preallocation"}
    return " ".join(f"{name}={level}" for name, level in changed.items())
