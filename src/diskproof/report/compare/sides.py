"""What ``compare A B`` may name: a store, a study, a host, a date, or cells by their levels."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from diskproof.errors import UsageError
from diskproof.records import Cell, StudyRecord
from diskproof.report.barred import Bars, is_unfit
from diskproof.report.durability import (
    CellDurability,
    Levels,
    deciding_levels,
    join_verdicts,
    short_text,
)
from diskproof.report.labels import cell_label, plain_label, varying_factors
from diskproof.report.view import choose_studies
from diskproof.stats.study_race import fixed_blocks
from diskproof.store import ResultRow, Store, open_store
from diskproof.store.show import Figures

_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Variant:
    """One side of a comparison: its result rows, and the levels that were asked for by name.

    ``title`` says what ``asked`` was taken for. ``paired_studies`` are the ids of studies whose
    blocks are randomised (not imported); of those that are races ``fixed_blocks`` says how many
    blocks every cell ran, whatever was seen. ``bars`` are those of each study, ``verdicts`` all of
    the store, ``figures`` what each cell is told by in the metric that was asked for.
    """

    asked: str
    title: str
    rows: tuple[ResultRow, ...]
    levels: Mapping[str, str]
    paired_studies: frozenset[str]
    fixed_blocks: Mapping[str, int] = field(default_factory=dict)
    bars: Mapping[str, Bars] = field(default_factory=dict)
    verdicts: Mapping[Levels, CellDurability] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)

    def drops_flushes(self, row: ResultRow) -> bool:
        """Whether a cell of its rows drops flushes by rule."""
        return row.study_id in self.bars and is_unfit(row.cell, self.bars[row.study_id])

    def kept_text(self, row: ResultRow) -> str:
        """What is known of what such a cell keeps; empty where nothing is."""
        judged = self.verdicts.get(deciding_levels(row.cell))
        worst = judged.worst if judged else None
        if worst and worst.verdict.is_broken:
            return short_text(judged)
        if self.drops_flushes(row):
            return "drops flushes"
        return short_text(judged) if judged and worst else ""


@contextmanager
def _opened(default: str, asked: str) -> Iterator[tuple[Store, bool]]:
    """The store a side is in, and whether the side names the store itself."""
    # A misspelt path is a missing store, not a study that the default store does not hold.
    names_store = "://" in asked or Path(asked).is_file() or Path(asked).suffix in _SUFFIXES
    with open_store(asked if names_store else default) as store:
        yield store, names_store


def find_side(
    asked: str, default: str, studies: Sequence[str] = (), metric: str | None = None
) -> Variant:
    """Resolve one side. ``default`` is the store it is in unless it names one.

    In this order: a store (a file that is there, or a URL), levels (``cache=none,format=raw``), a
    study (name or id), a host (name or id), a date (``2026-11-21``, local time), a cell's label as
    ``rank`` prints it. ``studies`` limits all of them; ``metric`` is the one to be compared, if not
    the primary ones. Raises UsageError for none of these.
    """
    with _opened(default, asked) as (store, names_store):
        chosen = choose_studies(store, studies)
        rows = [row for study in chosen for row in store.results(study.id)]
        side = Variant(
            asked,
            "",
            tuple(rows),
            {},
            frozenset(s.id for s in chosen if s.origin == "run"),
            {s.id: first for s in chosen if (first := fixed_blocks(s)) is not None},
            {study.id: Bars(study) for study in chosen},
            join_verdicts(store.verdicts()),
        )
        found = replace(side, title=f"store {asked}") if names_store else None
        for find in (_find_levels, _find_study, _find_host, _find_date, _find_label):
            found = found or find(side, store, chosen)
        if found is None:
            raise _unknown(asked, store, chosen)
        told = (r for r in found.rows if (r.metric == metric if metric else r.primary))
        return replace(found, figures=store.figures(told))


def parse_levels(text: str) -> dict[str, str] | None:
    """``cache=none,format=raw`` as levels; None for anything else."""
    pairs = [part.partition("=") for part in text.split(",")]
    for factor, equals, level in pairs:
        # A cell's label may hold an equals sign, too: raw prealloc=full.
        if not (equals and level.strip() and len(factor.split()) == 1):
            return None
    return {factor.strip(): level.strip() for factor, _, level in pairs}


def _find_levels(side: Variant, store: Store, studies: Sequence[StudyRecord]) -> Variant | None:
    levels = parse_levels(side.asked)
    if levels is None:
        return None
    for factor, level in levels.items():
        known = dict.fromkeys(r.cell.level(factor) for r in side.rows if r.cell.level(factor))
        if not known:
            factors = dict.fromkeys(name for row in side.rows for name, _ in row.cell.levels)
            raise UsageError(f"no cell has a factor {factor!r}", f"there are {', '.join(factors)}")
        if level not in known:
            raise UsageError(f"no cell with {factor}={level}", f"levels: {', '.join(known)}")
    rows = _kept(side, lambda row: levels.items() <= row.cell.levels_dict().items())
    if not rows:
        raise UsageError(f"no cell has {side.asked} together")
    return replace(side, title=f"cells with {side.asked}", rows=rows, levels=levels)


def _find_study(side: Variant, store: Store, studies: Sequence[StudyRecord]) -> Variant | None:
    by_id = [study for study in studies if study.id == side.asked]
    named = by_id or [study for study in studies if study.name == side.asked]
    if not named:
        return None
    newest = named[-1]
    rows = _kept(side, lambda row: row.study_id == newest.id)
    return replace(side, title=f"study {newest.name} ({newest.id})", rows=rows)


def _find_host(side: Variant, store: Store, studies: Sequence[StudyRecord]) -> Variant | None:
    hosts = {h.id: h for h in store.hosts() if side.asked in (h.id, h.name)}
    if not hosts:
        return None
    rows = _kept(side, lambda row: row.host_id in hosts)
    return replace(side, title=f"host {next(iter(hosts.values())).name}", rows=rows)


def _find_date(side: Variant, store: Store, studies: Sequence[StudyRecord]) -> Variant | None:
    if not _DATE.fullmatch(side.asked):
        return None
    days = {
        run.id: time.strftime("%Y-%m-%d", time.localtime(run.started))
        for study in studies
        for run in store.runs(study.id)
    }
    if side.asked not in days.values():
        known = ", ".join(sorted(set(days.values()))) or "no run"
        raise UsageError(f"no run was made on {side.asked}", f"there are {known}")
    rows = [row.only(lambda _, run: days[run] == side.asked) for row in side.rows]
    kept = tuple(row for row in rows if row.values)
    return replace(side, title=f"runs of {side.asked}", rows=kept)


def _find_label(side: Variant, store: Store, studies: Sequence[StudyRecord]) -> Variant | None:
    wanted = side.asked.split()
    for study in reversed(studies):
        factors = varying_factors(study.cells)
        for cell in study.cells:
            labels = (plain_label(cell, factors), cell_label(cell, factors))
            if wanted in [label.split() for label in labels]:
                levels = {name: cell.level(name) for name in factors if cell.level(name)}
                rows = _kept(side, _is_cell(cell, study.id))
                return replace(side, title=f"cell {side.asked}", rows=rows, levels=levels)
    return None


def _is_cell(cell: Cell, study_id: str) -> Callable[[ResultRow], bool]:
    return lambda row: row.study_id == study_id and row.cell.levels == cell.levels


def _kept(side: Variant, wanted: Callable[[ResultRow], bool]) -> tuple[ResultRow, ...]:
    return tuple(row for row in side.rows if wanted(row))


def _unknown(asked: str, store: Store, studies: Sequence[StudyRecord]) -> UsageError:
    names = ", ".join(dict.fromkeys(study.name for study in studies)) or "none"
    hosts = ", ".join(dict.fromkeys(host.name for host in store.hosts())) or "none"
    return UsageError(
        f"{asked!r} is no store, study, host, date or cell",
        f"{store.place} holds the studies {names} and the hosts {hosts}",
        "name cells by their levels, like cache=none,format=raw",
    )
