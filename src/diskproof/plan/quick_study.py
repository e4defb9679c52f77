"""The text of a study that fits a budget."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diskproof.plan.quick_cells import BACKING, Scope
from diskproof.records.verdicts import Fault
from diskproof.records.virtual_machines import Levels
from diskproof.units import MIB

FAULTS: tuple[Fault, ...] = ("power", "qemu-kill")
WRITER = "ledger"
WRITER_SECONDS = 1.0


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
