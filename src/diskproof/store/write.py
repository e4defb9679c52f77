"""Records into tables. Every function works inside its caller's transaction."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from diskproof.errors import UsageError
from diskproof.records import Cell, HostRecord, StudyRecord
from diskproof.store.kinds import require_storable
from diskproof.store.parts import Run, RunKind, Values, encode_cell, kind_of
from diskproof.store.queries import read_warnings
from diskproof.store.rows import Progress
from diskproof.store.tables import CELL, HOST, PROGRESS, STUDY, STUDY_CELL

_Item = TypeVar("_Item")
_BATCH = 500


class DuplicateRun(UsageError):
    """The place of the run is taken by another one that counts."""


# -- studies and hosts ----------------------------------------------------------------------


def require_storable_study(study: StudyRecord) -> None:
    """Raises UsageError naming what cannot be stored of a study."""
    require_storable(STUDY, vars(study), "the study")
    for cell in study.cells:
        require_storable(CELL, encode_cell(cell), "a cell of the study")


def require_storable_host(host: HostRecord) -> None:
    """Raises UsageError naming what cannot be stored of a host."""
    require_storable(HOST, vars(host), "the host")


def write_study(connection: Connection, study: StudyRecord) -> None:
    """Store a study, or prolong the stored one: new cells are added, none is taken away. One
    without cells (those of crashes and tiles stand with their runs) leaves what a plan told."""
    columns = {column.key: getattr(study, column.key) for column in STUDY.c}
    if not _is_known(connection, STUDY, study.id):
        connection.execute(insert(STUDY).values(**columns))
    else:
        del columns["created"]
        if not study.cells:
            known = read_warnings(connection, study.id)
            columns["warnings"] = tuple(dict.fromkeys([*known, *study.warnings]))
            del columns["dropped"]
        connection.execute(update(STUDY).where(STUDY.c.id == study.id).values(**columns))
    _write_cells(connection, study.id, study.cells)


def _write_cells(connection: Connection, study_id: str, cells: Sequence[Cell]) -> None:
    own = select(STUDY_CELL.c.cell_id).where(STUDY_CELL.c.study_id == study_id)
    listed = set(connection.scalars(own))
    by_id = {cell.id: cell for cell in cells if cell.id not in listed}
    known: set[str] = set()
    for ids in _batches(list(by_id)):
        known.update(connection.scalars(select(CELL.c.id).where(CELL.c.id.in_(ids))))
    _insert_rows(connection, CELL, (encode_cell(by_id[key]) for key in by_id if key not in known))
    _insert_rows(
        connection,
        STUDY_CELL,
        (
            {"study_id": study_id, "cell_id": key, "place": place}
            for place, key in enumerate(by_id, len(listed))
        ),
    )


def write_host(connection: Connection, host: HostRecord) -> None:
    """Store a host, or the newest facts of a known one."""
    columns = {"name": host.name, "facts": host.facts}
    changed = connection.execute(update(HOST).where(HOST.c.id == host.id).values(**columns))
    if changed.rowcount == 0:
        connection.execute(insert(HOST).values(id=host.id, **columns))


def write_unknown(connection: Connection, study: StudyRecord, host: HostRecord) -> None:
    """Store a study and a host; what is known of them stays as it is."""
    if not _is_known(connection, STUDY, study.id):
        write_study(connection, study)
    if not _is_known(connection, HOST, host.id):
        write_host(connection, host)


# -- runs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StorableRun:
    """A run of which all can be stored, as the rows that it becomes."""

    run: Run
    kind: RunKind[Any]
    header: Values
    parts: Sequence[tuple[Table, Sequence[Values]]]


def make_storable(run: Run) -> StorableRun:
    """Raises UsageError naming what cannot be stored of a run."""
    kind = kind_of(run)
    header = kind.encode_header(run)
    rows = [each for part in kind.parts for each in part.rows(run, header)]
    return StorableRun(run, kind, header, rows)


def write_run(connection: Connection, each: StorableRun) -> None:
    """Store a run with all it brought; a run that is stored already is left as it is.

    Raises DuplicateRun when its place is taken by another run that counts, UsageError when its
    study, its cell or its host is unknown.
    """
    if _is_stored(connection, each):
        return
    table = each.kind.table
    try:
        _require_known(connection, each)
        number = connection.scalar(insert(table).values(**each.header).returning(table.c.number))
        for part, rows in each.parts:
            _insert_rows(connection, part, ({"run_number": number} | row for row in rows))
    except IntegrityError as error:
        raise _duplicate(each) from error


def _is_stored(connection: Connection, each: StorableRun) -> bool:
    table, place = each.kind.table, each.kind.place
    query = select(*(table.c[name] for name in place)).where(table.c.id == each.run.id)
    stored = connection.execute(query).one_or_none()
    if stored is not None and tuple(stored) != tuple(each.header[name] for name in place):
        raise _duplicate(each)
    return stored is not None


def _duplicate(each: StorableRun) -> DuplicateRun:
    place = (f"{name.removesuffix('_id')} {each.header[name]}" for name in each.kind.place)
    return DuplicateRun(
        f"{each.kind.name} {each.run.id} cannot be stored",
        f"another one counts already for {', '.join(place)}",
        "another process may be running the same study",
    )


def _require_known(connection: Connection, each: StorableRun) -> None:
    run = each.run
    for table, key in ((STUDY, run.study_id), (HOST, run.host_id)):
        if not _is_known(connection, table, key):
            raise _unknown(each, f"{table.name} {key!r} is not known")
    if each.kind.planned:
        of_study = (STUDY_CELL.c.study_id == run.study_id, STUDY_CELL.c.cell_id == run.cell.id)
        if connection.scalar(select(STUDY_CELL.c.place).where(*of_study)) is None:
            raise _unknown(each, "its cell is not one of its study")
    elif not _is_known(connection, CELL, run.cell.id):
        connection.execute(insert(CELL).values(**encode_cell(run.cell)))


def _is_known(connection: Connection, table: Table, key: str) -> bool:
    return connection.scalar(select(table.c.id).where(table.c.id == key)) is not None


def _unknown(each: StorableRun, why: str) -> UsageError:
    return UsageError(f"{each.kind.name} {each.run.id} cannot be stored", why)


def supersede(connection: Connection, kind: RunKind[Any], study_id: str) -> int:
    """What was in vain in a study counts no longer, so that it is made again. Returns how many."""
    table = kind.counted
    vain = (table.c.study_id == study_id, table.c.counted, kind.again)
    return connection.execute(update(table).where(*vain).values(counted=False)).rowcount


# -- progress -------------------------------------------------------------------------------


def write_progress(connection: Connection, progress: Progress) -> None:
    remove_progress(connection, progress.study_id)
    connection.execute(insert(PROGRESS).values(**vars(progress)))


def remove_unused_study(connection: Connection, study_id: str) -> None:
    """Nothing, where a cell, a run or what somebody measures refers to the study."""
    with suppress(IntegrityError), connection.begin_nested():
        connection.execute(delete(STUDY).where(STUDY.c.id == study_id))


def remove_progress(connection: Connection, study_id: str) -> None:
    connection.execute(delete(PROGRESS).where(PROGRESS.c.study_id == study_id))


def _insert_rows(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    for batch in _batches(list(rows)):
        connection.execute(insert(table), batch)


def _batches(items: Sequence[_Item]) -> Iterable[Sequence[_Item]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))
