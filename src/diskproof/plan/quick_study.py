"""What matters of a folder's disks to who runs virtual machines there, by what one asks first, and
the study of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from diskproof.advice.dialect import Dialect, Target
from diskproof.errors import HostError
from diskproof.plan.like import dialect_of
from diskproof.plan.rules import find_obstacle
from diskproof.records import HostFacts
from diskproof.records.verdicts import Fault
from diskproof.records.virtual_machines import Levels
from diskproof.study.like import DiskDefault
from diskproof.units import MIB

BACKING = "here"
"""The name of the folder among a study's backings."""
CACHES = ("none", "writeback")
AIOS = ("io_uring", "native", "threads")
WORKLOADS = ("sync-write-4k", "rand-read-4k-d32", "rand-write-4k-d32", "seq-read", "seq-write")
SETTINGS = ("format", "preallocation", "cache", "aio", "discard", "detect-zeroes", "bus")
"""Those of a disk that a study names. What a manager does of I/O threads is a guest's alone."""

FAULTS: tuple[Fault, ...] = ("power", "qemu-kill")
WRITER = "ledger"
WRITER_SECONDS = 1.0


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


# -- the text of the study ------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """How thoroughly each cell is looked at: ``size`` of the disk in bytes, ``runtime`` and
    ``ramp`` of a run in seconds, ``records`` that a writer writes and the seconds in which losses
    of them are looked for. ``steps`` above the least size or run time."""

    size: int
    runtime: float
    ramp: float
    records: int
    explore_seconds: float
    steps: int


def render_quick(
    name: str,
    folder: str,
    scope: Scope,
    effort: Effort,
    blocks: int,
    run_timeout: float,
    told: Sequence[str],
) -> str:
    """The study's file. ``told`` are lines for whoever reads it."""
    cells = [*_cells(scope)]
    factors = {factor: _levels(factor, cells) for factor in cells[-1] if factor != "frontend"}
    free = [factor for factor, levels in factors.items() if len(levels) > 1]
    frontends = ["host", "daemon", *(["guest"] if scope.guests is not None else [])]
    lines = [
        *(f"# {line}".rstrip() for line in told),
        f"name = {quoted(name)}",
        f"workloads = {json.dumps(scope.workloads)}",
        f"like = {quoted(scope.default.manager)}  # what it gives a new disk there is a cell",
        "",
        f"[backings.{BACKING}]",
        f"path = {quoted(folder)}",
        "",
        "[factors]",
        f"frontend = {json.dumps(frontends)}",
        *(f"{factor} = {_values(levels)}" for factor, levels in factors.items()),
        "",
        "[[only]]  # the bare folder",
        'frontend = "host"',
    ]
    for cell in cells:
        lines += ["", "[[only]]", f"frontend = {quoted(cell['frontend'])}"]
        lines += [f"{factor} = {quoted(cell[factor])}" for factor in free if factor in cell]
    return "\n".join([*lines, *_rules(effort, blocks, run_timeout), ""])


def _rules(effort: Effort, blocks: int, run_timeout: float) -> list[str]:
    return [
        "",
        "[[exclude]]  # it has no settings that could lose anything",
        'frontend = "host"',
        f"workload = {quoted(WRITER)}",
        "",
        "[protocol]  # more blocks make the answer surer, and those that were run count",
        f"blocks = {blocks}",
        f'size = "{effort.size // MIB}MiB"',
        f'runtime = "{effort.runtime:g}s"',
        f'ramp = "{effort.ramp * 1000:g}ms"',
        f'run_timeout = "{run_timeout:.0f}s"',
        "",
        "[crash]",
        f"writers = {quoted(WRITER)}",
        f"faults = {json.dumps(FAULTS)}",
        f"records = {effort.records}",
        f'seconds = "{WRITER_SECONDS:g}s"',
        f'explore_seconds = "{effort.explore_seconds:g}s"',
    ]


def _cells(scope: Scope) -> Iterator[dict[str, str]]:
    """The disks that are no default, with their frontends; a guest's is the last one, if any."""
    yield from ({"frontend": "daemon", "iothread": "off", **_plain(disk)} for disk in scope.disks)
    iothread = dict(scope.default.levels).get("iothread", "off")
    yield from ({"frontend": "guest", "iothread": iothread, **disk} for disk in scope.guests or ())


def _plain(disk: Levels) -> Levels:
    """The storage daemon has no bus."""
    return {name: level for name, level in disk.items() if name != "bus"}


def _levels(factor: str, cells: Sequence[Levels]) -> list[str]:
    return list(dict.fromkeys(cell[factor] for cell in cells if factor in cell))


def _values(levels: Sequence[str]) -> str:
    return quoted(levels[0]) if len(levels) == 1 else json.dumps(levels)


def quoted(text: str) -> str:
    """A string of TOML, which has JSON's escapes but no raw DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
