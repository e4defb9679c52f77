"""The store as the other rooms see it: one object, one transaction per call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from sqlalchemy import Connection, Engine

from diskproof.errors import UsageError
from diskproof.records import Check, Histogram, HostRecord, RunRecord, Series, StudyRecord
from diskproof.records.tiles import TileRun
from diskproof.records.verdicts import CrashRun
from diskproof.stats.histograms import merge_histograms
from diskproof.store import crash, read, read_runs, tiles, write
from diskproof.store.connect import StoreUrl, explained, make_engine
from diskproof.store.limits import (
    require_storable_crash_run,
    require_storable_host,
    require_storable_run,
    require_storable_study,
)
from diskproof.store.rows import Progress, ResultRow, RunCounts, RunRow, VerdictRow
from diskproof.store.schema import require_schema
from diskproof.store.tables import RUN
from diskproof.store.tile_limits import require_storable_tile_run


def open_store(url_or_path: str, *, create: bool = False) -> Store:
    """Open a store: the path of a SQLite file, or a ``postgresql://`` URL.

    With ``create`` an empty store is made where there is none. Raises UsageError when there is
    no store or something else is there, HostError when it cannot be reached, read or written.
    """
    place = StoreUrl(url_or_path)
    with explained(place):
        engine = make_engine(place, create=create)
        try:
            version = require_schema(engine, place, create=create)
        except BaseException:
            engine.dispose()
            raise
    return Store(place, engine, version)


class Store:
    """An open store. Safe to use from several threads; close it, or use it in a ``with`` block.

    Every method is one transaction and raises HostError when the database fails it.
    """

    def __init__(self, place: StoreUrl, engine: Engine, version: int) -> None:
        self._place = place
        self._engine = engine
        self._has_verdicts = version >= 2
        self._has_tiles = version >= 3

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        with explained(self._place):
            self._engine.dispose()

    @property
    def place(self) -> str:
        """Where the store is, for people; without a password."""
        return str(self._place)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(self._place), self._engine.connect() as connection:
            if self._place.url is not None:
                # All queries of one call see one moment, as they do in SQLite.
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with explained(self._place), self._engine.connect() as connection:
            connection.execution_options(begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    # -- writing ----------------------------------------------------------------------------

    def add_study(self, study: StudyRecord) -> None:
        """Store a study; the same id again prolongs it (blocks) and may add cells."""
        require_storable_study(study)
        with self._writing() as connection:
            write.write_study(connection, study)

    def add_host(self, host: HostRecord) -> None:
        """Store a host; the same id again replaces its facts."""
        require_storable_host(host)
        with self._writing() as connection:
            write.write_host(connection, host)

    def add_run(self, run: RunRecord) -> None:
        """Store a run; when this returns, it survives a power cut. The same id again does nothing.

        Raises DuplicateRun when another run counts for the same study, cell and block.
        """
        self._add_runs([run])

    def add_imported(self, study: StudyRecord, host: HostRecord, runs: Iterable[RunRecord]) -> None:
        """Store an imported study with all its runs in one transaction, or nothing of it."""
        require_storable_study(study)
        require_storable_host(host)
        self._add_runs(list(runs), study, host)

    def _add_runs(
        self,
        runs: list[RunRecord],
        study: StudyRecord | None = None,
        host: HostRecord | None = None,
    ) -> None:
        for run in runs:
            require_storable_run(run)
        with self._writing() as connection:
            if study is not None:
                write.write_study(connection, study)
            if host is not None:
                write.write_host(connection, host)
            for run in runs:
                write.write_run(connection, run)

    def remove_failed(self, study_id: str) -> int:
        """Let failed runs be made again. They stay stored but count no longer; returns how many."""
        with self._writing() as connection:
            return write.supersede_failed(connection, study_id)

    def add_crash_run(self, run: CrashRun) -> None:
        """Store a crash run with its verdicts and files, as ``add_run`` stores a run."""
        require_storable_crash_run(run)
        with self._writing() as connection:
            crash.write_crash_run(connection, run)

    def remove_undecided(self, study_id: str) -> int:
        """Let undecided verdicts be made again; returns how many there were."""
        with self._writing() as connection:
            return crash.supersede_undecided(connection, study_id)

    def add_tile_run(self, run: TileRun) -> None:
        """Store a run of tiles with all it brought, as ``add_run`` stores a run."""
        require_storable_tile_run(run)
        with self._writing() as connection:
            tiles.write_tile_run(connection, run)

    def remove_failed_tiles(self, study_id: str) -> int:
        """Let failed runs of tiles be made again, as ``remove_failed`` does; returns how many."""
        with self._writing() as connection:
            return tiles.supersede_failed(connection, study_id)

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
            return read.read_studies(connection)

    def find_study(self, name_or_id: str) -> StudyRecord | None:
        """The study of this id, or else the newest of this name."""
        with self._reading() as connection:
            return read.find_study(connection, name_or_id)

    def counts(self, study_id: str) -> RunCounts:
        """How many runs are planned, and how many went well and failed."""
        with self._reading() as connection:
            return read_runs.read_counts(connection, study_id)

    def hosts(self) -> list[HostRecord]:
        with self._reading() as connection:
            return read.read_hosts(connection)

    def finished_runs(self, study_id: str) -> set[tuple[int, str]]:
        """(block, cell id) of every run that need not be made again: counted, good or failed."""
        with self._reading() as connection:
            return read_runs.read_finished(connection, study_id)

    def results(self, study: str | None = None, metric: str | None = None) -> list[ResultRow]:
        """Values of counted good runs by study, host, cell and metric.

        ``study`` is a name or an id. Rows come in the order of studies, cells and metrics.
        """
        with self._reading() as connection:
            return read.read_results(connection, study, metric)

    def runs(self, study_id: str) -> list[RunRow]:
        """Every run of a study in the order they ended, replaced attempts included."""
        with self._reading() as connection:
            return list(read_runs.read_runs(connection, study_id))

    def failures(self, study_id: str) -> list[RunRow]:
        """The counted runs of a study that failed."""
        with self._reading() as connection:
            failed = (RUN.c.counted, RUN.c.status == "failed")
            return list(read_runs.read_runs(connection, study_id, *failed))

    def run(self, run_id: str) -> RunRecord:
        """A run with everything it brought. Raises UsageError when there is none of this id."""
        with self._reading() as connection:
            found = read_runs.find_run(connection, run_id)
        if found is None:
            raise UsageError(f"the store {self.place} has no run {run_id!r}")
        return found

    def series_of(self, run_id: str) -> tuple[Series, ...]:
        """The time series of one run."""
        with self._reading() as connection:
            return read_runs.read_series(connection, run_id)

    def histograms(
        self, study_id: str, cell_id: str, host_id: str | None = None
    ) -> tuple[Histogram, ...]:
        """The latency distributions of a cell, each merged over its counted good runs."""
        with self._reading() as connection:
            found = read_runs.read_histograms(connection, study_id, cell_id, host_id)
        return tuple(merge_histograms(of_one_name) for of_one_name in found.values())

    def checks(self, study_id: str, host_id: str | None = None) -> Mapping[str, tuple[Check, ...]]:
        """By cell id, the effective configuration of its newest counted run that has one."""
        with self._reading() as connection:
            return read_runs.read_checks(connection, study_id, host_id)

    def verdicts(self, study_id: str | None = None) -> list[VerdictRow]:
        """The verdicts that count, of one study or of all, in the order they were made."""
        if not self._has_verdicts:
            return []
        with self._reading() as connection:
            return crash.read_verdicts(connection, study_id)

    def crash_run(self, run_id: str) -> CrashRun:
        """A crash run with all it left. Raises UsageError when there is none of this id."""
        found = None
        if self._has_verdicts:
            with self._reading() as connection:
                found = crash.find_crash_run(connection, run_id)
        if found is None:
            raise UsageError(f"the store {self.place} has no crash run {run_id!r}")
        return found

    def tile_runs(self, study_id: str | None = None) -> tuple[TileRun, ...]:
        """The runs of tiles that count, failed ones too, of one study or of all, as they ended.

        Their series and artefacts are left out: ``tile_series_of`` and ``tile_run`` have them.
        """
        if not self._has_tiles:
            return ()
        with self._reading() as connection:
            return tiles.read_tile_runs(connection, study_id)

    def tile_series_of(self, run_id: str) -> tuple[Series, ...]:
        """The time series of one run of tiles."""
        if not self._has_tiles:
            return ()
        with self._reading() as connection:
            return tiles.read_tile_series(connection, run_id)

    def tile_run(self, run_id: str) -> TileRun:
        """A run of tiles with all it brought. Raises UsageError when there is none of this id."""
        found = None
        if self._has_tiles:
            with self._reading() as connection:
                found = tiles.find_tile_run(connection, run_id)
        if found is None:
            raise UsageError(f"the store {self.place} has no run of tiles {run_id!r}")
        return found

    def progress(self) -> Progress | None:
        """The progress that was written last."""
        with self._reading() as connection:
            return read.find_progress(connection)
