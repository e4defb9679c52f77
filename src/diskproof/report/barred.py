"""Settings that no measurement makes advisable: by rule they lose what was flushed."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from diskproof.records import BackingSpec, Cell, StudyRecord
from diskproof.study import keys
from diskproof.study.backings import FOLDER, chain, read_backings
from diskproof.study.factors import CACHE_MODES

_PROVED = re.compile(r"the server of backing (\S+): (.+)")
_WAY = re.compile(r"(flushes passed on|plain writes made durable): (\d+) of (\d+)")


@dataclass(frozen=True)
class Bar:
    """Why a cell is not advised whatever was measured of it. ``rule`` is its short name, ``what``
    the rest of "it ...". ``drops_flushes``: only a disk that may be lost can be like that;
    ``useless``: no disk can. One that is neither outlives a program, and no power cut."""

    rule: str
    what: str
    drops_flushes: bool = True
    useless: bool = False


class Bars:
    """The rules, with what a study says of its backings."""

    def __init__(self, study: StudyRecord) -> None:
        self._backings = read_backings_of(study)
        self._servers = {
            found[1]: found[2] for text in study.warnings if (found := _PROVED.fullmatch(text))
        }

    def find(self, cell: Cell) -> tuple[Bar, ...]:
        """All that bar a cell; empty for most."""
        return tuple(self._find(cell))

    def _find(self, cell: Cell) -> Iterator[Bar]:
        cache, name = cell.level("cache"), cell.level("backing")
        if cache in CACHE_MODES and CACHE_MODES[cache].no_flush:
            yield Bar("no-flush", f"does not carry out flushes (cache={cache}, by QEMU's manual)")
        if name in self._servers and not _passes_flushes(self._servers[name]):
            yield Bar(
                "server",
                f"is behind a server that did not pass flushes on when backing {name} was probed",
            )
        if barrier := _find_barrier(cell.level("on")):
            yield Bar("barrier", f"is on a file system mounted with {barrier}")
        if name in self._backings:
            for spec in chain(self._backings[name]):
                yield from _of_backing(spec)


MARK = " !"
DROPS_FLUSHES = "! drops flushes: what a program was promised may be lost"


def is_unfit(cell: Cell, bars: Bars) -> bool:
    """Whether a cell drops flushes by rule: its speed is that of a disk that may be lost."""
    return any(bar.drops_flushes or bar.useless for bar in bars.find(cell))


def dropping_text(cells: Iterable[Cell], bars: Bars) -> str:
    """What ``!`` says, with the rule and its source for each kind of cell that has it."""
    found = (bar for cell in cells for bar in bars.find(cell) if bar.drops_flushes or bar.useless)
    reasons = list(dict.fromkeys(bar.what for bar in found))
    return f"{DROPS_FLUSHES}: it {'; it '.join(reasons)}" if reasons else ""


def marked(label: str, cell: Cell, bars: Bars) -> str:
    """A cell's label, with the mark of those that drop flushes by rule."""
    return label + MARK * is_unfit(cell, bars)


def _of_backing(spec: BackingSpec) -> Iterator[Bar]:
    """Sources: zfsprops(7), mount(8) and ext4(5), tgtd(8), targetcli(8), tmpfs(5)."""
    store = spec.option("store")
    if spec.kind == "zfs" and spec.option("sync") == "disabled":
        yield Bar("sync-disabled", f"is on ZFS with sync=disabled (backing {spec.name})")
    if spec.kind == "nbd" and spec.option("cache") == "unsafe":
        yield Bar("server-no-flush", f"is behind an NBD server with cache=unsafe ({spec.name})")
    if store == "nullio":
        yield Bar("nullio", f"stores nothing at all (backing {spec.name})", useless=True)
    if spec.kind == "iscsi" and store == "aio":
        yield Bar("tgt-aio", f"is behind tgt's aio store, which drops flushes ({spec.name})")
    if barrier := _find_barrier(spec.option("mount")):
        yield Bar("barrier", f"is on a file system mounted with {barrier} (backing {spec.name})")
    if spec.kind == "tmpfs":
        yield Bar("memory", f"is in memory (backing {spec.name})", drops_flushes=False)


def _find_barrier(options: str) -> str:
    """The mount option that drops flushes, or empty."""
    found = re.search(r"(?:^|,)(nobarrier|barrier=0)(?:,|$)", options)
    return found[1] if found else ""


def _passes_flushes(proof: str) -> bool:
    """Whether every flush was made durable, or each write was without one; a server that was not
    measured is not accused."""
    counts = {way: (int(durable), int(asked)) for way, durable, asked in _WAY.findall(proof)}
    return not counts or any(durable == asked for durable, asked in counts.values())


def read_backings_of(study: StudyRecord) -> dict[str, BackingSpec]:
    """The backings of a study by name; none where the text is no study's (imported results)."""
    try:
        tables = tomllib.loads(study.text).get("backings", {})
    except (ValueError, RecursionError):
        return {}
    _, made = read_backings(tables, keys.Mistakes(study.text, study.name))
    named = {spec.name: spec for specs in made.values() for spec in specs}
    return named if named or not study.text else {FOLDER.name: FOLDER}
