"""Kinds of runs: each a header and the parts that belong to it, as rows of data.

Another kind of run is one ``RunKind`` with its parts, beside its tables. How its runs are bounded,
encoded, counted once, superseded and read back follows from what stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar, get_args

from sqlalchemy import Column, ColumnElement, Table, Text, case, cast

from diskproof.records import Artefact, Cell, Check, Failure, Histogram, Metric, RunRecord, Series
from diskproof.records.tiles import GuestUse, StepRun, TileRun, WorkRun
from diskproof.records.verdicts import COVERED, CrashRun, Fault, Verdict
from diskproof.store import tables
from diskproof.store.kinds import MAX_PARTS, MAX_PER_RUN, require, require_storable

_MAX_STEPS = 100_000
_OWNERS = ("study_id", "cell_id", "host_id")

Values = dict[str, Any]


class Run(Protocol):
    """What every kind of run says of itself."""

    @property
    def id(self) -> str: ...
    @property
    def study_id(self) -> str: ...
    @property
    def host_id(self) -> str: ...
    @property
    def cell(self) -> Cell: ...
    @property
    def failure(self) -> Failure | None: ...


AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass(frozen=True, eq=False)  # queries are kept by the part that they are of
class Part:
    """The records that one field of a run holds, and the table that they are rows of.

    A record's fields and the columns of its table have the same names. No two records of a run
    have the same ``unique``, the arrays in ``parallel`` are equally long. Lists of runs leave out
    what is not ``light``. An ``inner`` part is a field of each record, its last one; beside the
    run, its ``keys`` name the column of that record's place.
    """

    field: str
    record: type
    table: Table
    most: int = MAX_PER_RUN
    unique: str = ""
    parallel: tuple[str, ...] = ()
    light: bool = False
    keys: tuple[str, ...] = ("run_number",)
    inner: Part | None = None
    order: ColumnElement[Any] | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        within = self.inner.field if self.inner else None
        return tuple(field.name for field in fields(self.record) if field.name != within)

    @cached_property
    def columns(self) -> tuple[Column[Any], ...]:
        return tuple(self.table.c[name] for name in self.names)

    @property
    def place(self) -> ColumnElement[Any]:
        """What the records of a run are in order by."""
        return self.table.c.place if self.order is None else self.order

    def encode(self, records: Sequence[Any], **shared: object) -> Iterator[Values]:
        """A row for each record. Raises UsageError naming what cannot be stored."""
        require(len(records) <= self.most, self.field, f"more than {self.most} in one run")
        keys = [getattr(record, self.unique) for record in records] if self.unique else []
        same = f"two of one run have the same {self.unique}"
        require(len(set(keys)) == len(keys), self.field, same)
        for place, record in enumerate(records):
            row = {name: getattr(record, name) for name in self.names}
            label = f"{row.get('name', place)!r:.60} in {self.field}"
            require_storable(self.table, row, label)
            lengths = {len(row[name]) for name in self.parallel}
            require(len(lengths) < 2, label, "its two lists differ in length")
            yield shared | ({"place": place} if "place" in self.table.c else {}) | row

    def rows(self, run: Run, header: Values) -> Iterator[tuple[Table, list[Values]]]:
        """The rows of this part and of the one in it, still without their run's number."""
        records = getattr(run, self.field)
        owners = {name: header[name] for name in _OWNERS if name in self.table.c}
        yield self.table, list(self.encode(records, **owners))
        if inner := self.inner:
            rows: list[Values] = []
            for place, record in enumerate(records):
                rows += inner.encode(getattr(record, inner.field), **{inner.keys[-1]: place})
            yield inner.table, rows


@dataclass(frozen=True)
class RunKind(Generic[AnyRun]):
    """One kind of run: the table of its headers, and its parts.

    ``place`` names the columns that no two runs which count have in common. Rows of ``counted``
    count until a retry makes those ``again`` that were in vain. Stores have this kind since the
    version ``since``. A ``planned`` run's cell is one of its study's. ``require`` raises UsageError
    for what no column can say of a run.
    """

    name: str
    record: type[AnyRun]
    table: Table
    parts: tuple[Part, ...]
    place: tuple[str, ...]
    counted: Table
    again: ColumnElement[bool]
    since: int
    planned: bool = False
    require: Callable[[AnyRun], None] = lambda run: None

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables that runs of this kind are kept in."""
        parts = [each for part in self.parts for each in (part, part.inner) if each]
        return (self.table.name, *(part.table.name for part in parts))

    def encode_header(self, run: AnyRun) -> Values:
        """The row of its header. Raises UsageError naming what cannot be stored."""
        names = (column.key for column in self.table.c)
        row = {name: _read(run, name) for name in names if name not in ("number", "counted")}
        require_storable(self.table, row, self.name)
        require_storable(tables.CELL, encode_cell(run.cell), "its cell")
        self.require(run)
        return row


def _read(run: Run, name: str) -> Any:
    """What a column of a header says of a run."""
    if name == "cell_id":
        return run.cell.id
    whole, _, part = name.partition("_")
    return getattr(run.failure, part, None) if whole == "failure" else getattr(run, name)


def encode_cell(cell: Cell) -> Values:
    load = cell.workload
    names = {"workload": load.name, "kind": load.kind, "options": load.options}
    return {"id": cell.id, "levels": cell.levels, **names}


# -- the kinds ------------------------------------------------------------------------------


def _require_agreement(run: RunRecord) -> None:
    agree = (run.status == "failed") == (run.failure is not None)
    require(agree, "status", "failed and failure do not agree")


def _require_tiles(run: TileRun) -> None:
    """Raises UsageError when something is of a tile that was not there."""
    parts: tuple[StepRun | WorkRun | GuestUse, ...] = (*run.steps, *run.works, *run.uses)
    for part in parts:
        require(part.tile <= run.tiles, "tile", f"{part.tile} is not from 1 to {run.tiles}")


_metrics = partial(Part, "metrics", Metric, unique="name")
_series = partial(Part, "series", Series, parallel=("times", "values"))
_files = partial(Part, "artefacts", Artefact)
CHECKED_SETTINGS = Part("checks", Check, tables.CHECKED_SETTING)
HISTOGRAMS = Part("histograms", Histogram, tables.HISTOGRAM, parallel=("edges", "counts"))
_NOTES_NO_COVERAGE = (  # as ``Verdict.as_far_as_covered`` has it
    (tables.VERDICT.c.verdict == "keeps")
    & tables.VERDICT.c.estimated
    & ~cast(tables.VERDICT.c.details, Text).contains(COVERED)
)
_FAULT = case({fault: n for n, fault in enumerate(get_args(Fault))}, value=tables.VERDICT.c.fault)

MEASURED = RunKind(
    "run",
    RunRecord,
    tables.RUN,
    (
        _metrics(tables.METRIC),
        CHECKED_SETTINGS,
        _series(tables.SERIES),
        HISTOGRAMS,
        _files(tables.ARTEFACT),
    ),
    place=("study_id", "cell_id", "block"),
    counted=tables.RUN,
    again=tables.RUN.c.status == "failed",
    since=1,
    planned=True,
    require=_require_agreement,
)

CRASH = RunKind(
    "crash run",
    CrashRun,
    tables.CRASH_RUN,
    (
        Part("verdicts", Verdict, tables.VERDICT, unique="fault", light=True, order=_FAULT),
        _files(tables.CRASH_FILE),
    ),
    place=_OWNERS,
    counted=tables.VERDICT,
    again=(tables.VERDICT.c.verdict == "undecided") | _NOTES_NO_COVERAGE,
    since=2,
)

TILES = RunKind(
    "run of tiles",
    TileRun,
    tables.TILE_RUN,
    (
        Part("steps", StepRun, tables.TILE_STEP, _MAX_STEPS, light=True),
        Part(
            "works",
            WorkRun,
            tables.TILE_WORK,
            MAX_PARTS,
            light=True,
            inner=_metrics(tables.TILE_METRIC, keys=("run_number", "work_place")),
        ),
        Part("uses", GuestUse, tables.TILE_USE, MAX_PARTS, light=True),
        _series(tables.TILE_SERIES, MAX_PARTS),
        _files(tables.TILE_FILE),
    ),
    place=(*_OWNERS, "tiles", "repeat"),
    counted=tables.TILE_RUN,
    again=tables.TILE_RUN.c.failure_kind.is_not(None),
    since=3,
    require=_require_tiles,
)

KINDS: tuple[RunKind[Any], ...] = (MEASURED, CRASH, TILES)


def kind_of(run: Run) -> RunKind[Any]:
    return next(kind for kind in KINDS if isinstance(run, kind.record))
