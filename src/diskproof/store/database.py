"""The store as the other rooms see it: one object, one transaction per call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine

from diskproof.errors import HostError, UsageError
from diskproof.process.signals import signals_wait
from diskproof.records import Check, Histogram, HostRecord, RunRecord, Series, StudyRecord
from diskproof.records.tiles import TileRun
from diskproof.records.verdicts import CrashRun, VerdictRow
from diskproof.stats.histograms import (
    CellFigure,
    mean_figure,
    merge_histograms,
    percentile_of,
    pooled_figure,
)
from diskproof.store import queries, write
from diskproof.store.budget import MemoryBudget, spend
from diskproof.store.connect import StoreUrl, explained, make_engine, remove_unused
from diskproof.store.gate import Damage
from diskproof.store.parts import CRASH, MEASURED, TILES, AnyRun, Run, RunKind
from diskproof.store.rows import Progress, ResultRow, RunCounts, RunRow
from diskproof.store.schema import require_schema
from diskproof.store.tables import RUN


def open_store(url_or_path: str, *, create: bool = False) -> Store:
    """Open a store: the path of a SQLite file, or a ``postgresql://`` URL.

    With ``create`` an empty store is made where there is none. Raises UsageError when there is
    no store or something else is there, HostError when it cannot be reached, read or written.
    """
    place = StoreUrl(url_or_path)
    made = create and place.path is not None and not place.path.exists()
    with ExitStack() as undo:
        # A file that is half made is one that nobody knows what to do with.
        with signals_wait():
            if made and place.path is not None:
                undo.callback(remove_unused, place.path)
            store = _open(place, create, made)
            undo.callback(store.close)
        undo.pop_all()
    return store


def _open(place: StoreUrl, create: bool, made: bool) -> Store:
    with explained(place):
        engine = make_engine(place, create=create)
        try:
            version = require_schema(engine, place, create=create)
        except BaseException:
            engine.dispose()
            raise
    # A verb that only reads has one budget; one that writes may do so for days.
    return Store(place, engine, version, None if create else MemoryBudget(), made=made)


class Store:
    """An open store. Safe to use from several threads; close it, or use it in a ``with`` block:
    one that was ``made`` by opening it is taken away again when an error ends the block before
    there is a study in it.

    Every method is one transaction and raises HostError when the database fails it.
    """

    def __init__(
        self,
        place: StoreUrl,
        engine: Engine,
        version: int,
        budget: MemoryBudget | None,
        made: bool = False,
    ) -> None:
        self._place = place
        self._file = place.file
        self._engine = engine
        self._version = version
        self._budget = budget
        self._made = made

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with signals_wait():
            self.close()
            if kind is not None and self._made and self._place.path is not None:
                remove_unused(self._place.path)

    def close(self) -> None:
        with explained(self._place):
            self._engine.dispose()

    @property
    def place(self) -> str:
        """Where the store is, for people; without a password."""
        return str(self._place)

    @property
    def identity(self) -> str:
        """What tells the store from others; without a password."""
        return self._place.identity

    def _has(self, kind: RunKind[Any]) -> bool:
        """Whether the store is not older than this kind of run."""
        return self._version >= kind.since

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(self._place), spend(self._budget), self._connected() as connection:
            if self._place.url is not None:
                # All queries of one call see one moment, as they do in SQLite.
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._place.file != self._file:  # SQLite would go on writing to a file without a name
            why = "its file was removed, or another one put in its place"
            raise HostError(f"the store {self._place} is gone", why)
        with explained(self._place), self._connected() as connection:
            connection.execution_options(begin="BEGIN IMMEDIATE")
            transaction = connection.begin()
            yield connection
            with signals_wait():
                transaction.commit()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection; a transaction that is open at the end is rolled back. The pool's own steps
        take no signal: what it locks would stay locked, and the store with it."""
        with ExitStack() as stack:
            with signals_wait():
                connection = self._engine.connect()
                stack.callback(_close, connection)
            yield connection

    # -- writing ----------------------------------------------------------------------------

    def add_study(self, study: StudyRecord) -> None:
        """Store a study; the same id again prolongs it (blocks) and may add cells."""
        write.require_storable_study(study)
        with self._writing() as connection:
            write.write_study(connection, study)

    def add_host(self, host: HostRecord) -> None:
        """Store a host; the same id again replaces its facts."""
        write.require_storable_host(host)
        with self._writing() as connection:
            write.write_host(connection, host)

    def add_run(self, run: Run) -> None:
        """Store a run of any kind with all it brought; when this returns, it survives a power cut.
        The same id again does nothing.

        Raises DuplicateRun when another run counts in its place.
        """
        storable = write.make_storable(run)
        with self._writing() as connection:
            write.write_run(connection, storable)

    def add_crash_run(self, run: CrashRun) -> None:
        self.add_run(run)

    def add_tile_run(self, run: TileRun) -> None:
        self.add_run(run)

    def add_imported(self, study: StudyRecord, host: HostRecord, runs: Iterable[RunRecord]) -> None:
        """Store an imported study with all its runs in one transaction, or nothing of it."""
        write.require_storable_study(study)
        write.require_storable_host(host)
        storable = [write.make_storable(run) for run in runs]
        with self._writing() as connection:
            write.write_study(connection, study)
            write.write_host(connection, host)
            for each in storable:
                write.write_run(connection, each)

    def take_in(self, study: StudyRecord, host: HostRecord, run: Run) -> None:
        """``add_run``, with the run's study and host where they are unknown, in one transaction."""
        write.require_storable_study(study)
        write.require_storable_host(host)
        storable = write.make_storable(run)
        with self._writing() as connection:
            write.write_unknown(connection, study, host)
            write.write_run(connection, storable)

    def remove_failed(self, study_id: str) -> int:
        """Let failed runs be made again. They stay stored but count no longer; returns how many."""
        return self.supersede(MEASURED, study_id)

    def remove_undecided(self, study_id: str) -> int:
        """Let undecided verdicts be made again, as ``remove_failed`` does; returns how many."""
        return self.supersede(CRASH, study_id)

    def remove_failed_tiles(self, study_id: str) -> int:
        """Let failed runs of tiles be made again, as ``remove_failed`` does; returns how many."""
        return self.supersede(TILES, study_id)

    def supersede(self, kind: RunKind[Any], study_id: str) -> int:
        """Let runs of a kind that were in vain be made again. They stay stored but count no longer;
        returns how many."""
        with self._writing() as connection:
            return write.supersede(connection, kind, study_id)

    def set_progress(self, progress: Progress) -> None:
        """Say how far a study is. Call it between runs: it writes to the store's disk."""
        with self._writing() as connection:
            write.write_progress(connection, progress)

    def clear_progress(self, study_id: str) -> None:
        with self._writing() as connection:
            write.remove_progress(connection, study_id)

    def remove_unused_study(self, study_id: str) -> None:
        """Take away a study that nothing refers to: a question of which no answer is kept."""
        with self._writing() as connection:
            write.remove_unused_study(connection, study_id)

    # -- reading ----------------------------------------------------------------------------

    def studies(self) -> list[StudyRecord]:
        """All studies, oldest first."""
        with self._reading() as connection:
            return queries.read_studies(connection)

    def find_study(self, name_or_id: str) -> StudyRecord | None:
        """The study of this id, or else the newest of this name."""
        with self._reading() as connection:
            return queries.find_study(connection, name_or_id)

    def counts(self, study_id: str) -> RunCounts:
        """How many runs are planned, and how many went well and failed."""
        with self._reading() as connection:
            return queries.read_counts(connection, study_id)

    def hosts(self) -> list[HostRecord]:
        with self._reading() as connection:
            return queries.read_hosts(connection)

    def finished_runs(self, study_id: str) -> set[tuple[int, str]]:
        """(block, cell id) of every run that need not be made again: counted, good or failed."""
        with self._reading() as connection:
            return queries.read_finished(connection, study_id)

    def results(self, study: str | None = None, metric: str | None = None) -> list[ResultRow]:
        """Values of counted good runs by study, host, cell and metric.

        ``study`` is a name or an id. Rows come in the order of studies, cells and metrics.
        """
        with self._reading() as connection:
            return queries.read_results(connection, study, metric)

    def runs(self, study_id: str) -> list[RunRow]:
        """Every run of a study in the order they ended, replaced attempts included."""
        with self._reading() as connection:
            return queries.read_rows(connection, study_id)

    def failures(self, study_id: str) -> list[RunRow]:
        """The counted runs of a study that failed."""
        with self._reading() as connection:
            failed = (RUN.c.counted, RUN.c.status == "failed")
            return queries.read_rows(connection, study_id, *failed)

    def run(self, run_id: str) -> RunRecord:
        return self.run_of(MEASURED, run_id)

    def crash_run(self, run_id: str) -> CrashRun:
        return self.run_of(CRASH, run_id)

    def tile_run(self, run_id: str) -> TileRun:
        return self.run_of(TILES, run_id)

    def run_of(self, kind: RunKind[AnyRun], run_id: str) -> AnyRun:
        """A run of a kind with everything it brought, also one that counts no longer. Raises
        UsageError when there is none of this id."""
        found = None
        if self._has(kind):
            with self._reading() as connection:
                found = queries.find_run(connection, kind, run_id)
        if found is None:
            raise UsageError(f"the store {self.place} has no {kind.name} {run_id!r}")
        return found

    def series_of(self, run_id: str, *sources: str) -> tuple[Series, ...]:
        """The time series of one run, all or those of these sources."""
        return self._series_of(MEASURED, run_id, *sources)

    def tile_series_of(self, run_id: str, *sources: str) -> tuple[Series, ...]:
        """The time series of one run of tiles, all or those of these sources."""
        return self._series_of(TILES, run_id, *sources)

    def _series_of(self, kind: RunKind[Any], run_id: str, *sources: str) -> tuple[Series, ...]:
        if not self._has(kind):
            return ()
        with self._reading() as connection:
            return queries.read_series(connection, kind, run_id, sources)

    def histograms(
        self, study_id: str, cell_id: str, host_id: str | None = None
    ) -> tuple[Histogram, ...]:
        """The latency distributions of a cell, each merged over its counted good runs."""
        with self._reading() as connection:
            found = queries.read_histograms(connection, study_id, cell_id, host_id)
        with _merging(cell_id):
            return tuple(merge_histograms([*runs.values()]) for runs in found.values())

    def figures(self, rows: Iterable[ResultRow]) -> Mapping[ResultRow, CellFigure]:
        """What each cell is told by: the percentile of all operations of its runs, where each run
        has a histogram of them; else the mean of its runs."""
        told: dict[ResultRow, CellFigure] = {}
        cells: dict[tuple[str, str, str], list[tuple[ResultRow, Sequence[str], float]]] = {}
        for row in rows:
            asked = percentile_of(row.metric)
            if asked is None:
                told[row] = mean_figure(row.values)
            else:
                cells.setdefault((row.study_id, row.cell.id, row.host_id), []).append((row, *asked))
        for (study_id, cell_id, host_id), asked_of in cells.items():
            with self._reading() as connection:
                found = queries.read_histograms(connection, study_id, cell_id, host_id)
            with _merging(cell_id):
                told |= {row: _figure(row, names, at, found) for row, names, at in asked_of}
        return told

    def checks(self, study_id: str, host_id: str | None = None) -> Mapping[str, tuple[Check, ...]]:
        """By cell id, the effective configuration of its newest counted run that has one."""
        with self._reading() as connection:
            return queries.read_checks(connection, study_id, host_id)

    def verdicts(self, study_id: str | None = None) -> list[VerdictRow]:
        """The verdicts that count, of one study or of all, in the order they were made."""
        return [row for run in self.counted_runs(CRASH, study_id) for row in run.rows]

    def tile_runs(self, study_id: str | None = None) -> tuple[TileRun, ...]:
        """The runs of tiles that count, failed ones too, of one study or of all, as they ended.

        Their series and artefacts are left out: ``tile_series_of`` and ``tile_run`` have them.
        """
        return self.counted_runs(TILES, study_id)

    def counted_runs(self, kind: RunKind[AnyRun], study_id: str | None) -> tuple[AnyRun, ...]:
        """The runs of a kind that count, of one study or of all, as they ended, without series and
        artefacts."""
        if not self._has(kind):
            return ()
        with self._reading() as connection:
            return tuple(queries.read_counted(connection, kind, study_id))

    def progress(self) -> Progress | None:
        """The progress that was written last."""
        with self._reading() as connection:
            return queries.find_progress(connection)


def _close(connection: Connection) -> None:
    with signals_wait():
        connection.close()


@contextmanager
def _merging(cell_id: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Damage(f"the histograms of cell {cell_id} cannot be merged: {error}") from None


def _figure(
    row: ResultRow,
    names: Sequence[str],
    percent: float,
    found: Mapping[str, Mapping[str, Histogram]],
) -> CellFigure:
    """Reads and writes of a run are its operations together."""
    runs = []
    for run_id in row.run_ids:
        sides = [found[name][run_id] for name in names if run_id in found.get(name, ())]
        if not sides:
            return mean_figure(row.values)
        runs.append(merge_histograms(sides))
    return pooled_figure(runs, percent)
