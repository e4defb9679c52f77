"""Results out: CSV, Parquet, JSON or a spreadsheet, whole or not at all."""

import csv
import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from diskproof.errors import HostError, UsageError
from diskproof.process.extras import require_extra
from diskproof.records import StudyRecord
from diskproof.store.database import Store
from diskproof.store.export_rows import ExportColumn, Kind, Row, table_columns, table_rows
from diskproof.store.workbook import write_workbook

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_Batches = Iterable[Sequence[Row]]


def export_table(store: Store, studies: Sequence[str], kind: Kind, path: Path) -> None:
    """Write a table of some studies (names or ids; all when none is named) to ``path``.

    ``results`` has a row per cell and metric, ``runs`` one per run, ``series`` one per reading of a
    time series (times in seconds since the load began), ``verdicts`` one per crash cell and fault,
    ``tiles`` one per workload of each tile of a run of tiles (a failed run without any is one row).
    The suffix says how: ``.csv``, ``.parquet`` or ``.json``; ``-`` is CSV on standard output;
    ``.xlsx`` is a spreadsheet with results, runs, tiles and iozone's grids, whatever the kind. A
    file that is there is replaced when the new one is complete and on disk, and kept otherwise.
    Raises UsageError for another suffix or an unknown study, HostError when the file cannot be
    written.
    """
    if path.suffix.lower() == _WORKBOOK:
        with start_whole_file(path) as stream:
            write_workbook(stream, store, _require_studies(store, studies))
        return
    write = _find_writer(path)
    chosen = _require_studies(store, studies)
    columns = table_columns(store, chosen, kind)
    with start_whole_file(path) as stream:
        write(stream, columns, table_rows(store, chosen, kind))


def _find_writer(path: Path) -> Callable[[IO[bytes], Sequence[ExportColumn], _Batches], None]:
    if str(path) == "-":
        return _write_csv
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UsageError(
            f"{path} has no suffix that says what to write",
            f"it is one of {', '.join((*_WRITERS, _WORKBOOK))}",
            "name a file like results.csv",
        )
    return writer


def _require_studies(store: Store, names: Sequence[str]) -> list[StudyRecord]:
    if not names:
        return store.studies()
    found = {name: store.find_study(name) for name in names}
    for name, study in found.items():
        if study is None:
            known = ", ".join(sorted({each.name for each in store.studies()})[:10])
            raise UsageError(f"there is no study {name!r}", f"the store has: {known or 'none'}")
    return list({study.id: study for study in found.values() if study is not None}.values())


@contextmanager
def start_whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at the end of the block, unless that raises; ``-`` is stdout.

    Raises UsageError for what is no file: a device or a pipe would be replaced by one. Raises
    HostError when the file cannot be written.
    """
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no file that could be replaced"
        raise UsageError(f"{path} is {what}", hint="name a file")
    final = path.resolve()  # what a link points to is replaced, not the link
    part = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(final)
    except OSError as error:
        why = error.strerror or str(error)
        hint = "make room, or name another" if error.errno in _NO_ROOM else "name another"
        raise HostError(f"{path} cannot be written", why, hint) from error
    finally:
        with suppress(OSError):
            part.unlink()


# -- formats --------------------------------------------------------------------------------


def _write_csv(stream: IO[bytes], columns: Sequence[ExportColumn], batches: _Batches) -> None:
    """Lists are JSON, flags true and false, what is missing is empty."""
    stream.write(_csv_lines([[column.head for column in columns]]))
    for rows in batches:
        stream.write(_csv_lines([[_csv_field(c.value(row)) for c in columns] for row in rows]))


def _csv_lines(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _csv_field(value: object) -> object:
    return json.dumps(value) if isinstance(value, (list, bool)) else value


def _write_json(stream: IO[bytes], columns: Sequence[ExportColumn], batches: _Batches) -> None:
    """A list of objects, one a line; the cell's levels and a run's metrics are objects in them."""
    before = b"[\n"
    for rows in batches:
        for row in rows:
            stream.write(before + json.dumps(row).encode())
            before = b",\n"
    stream.write(b"[]\n" if before == b"[\n" else b"\n]\n")


def _write_parquet(stream: IO[bytes], columns: Sequence[ExportColumn], batches: _Batches) -> None:
    require_extra("parquet")
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        "text": pa.string(),
        "number": pa.float64(),
        "integer": pa.int64(),
        "flag": pa.bool_(),
        "numbers": pa.list_(pa.float64()),
    }
    schema = pa.schema([(column.head, types[column.type]) for column in columns])
    with parquet.ParquetWriter(stream, schema) as writer:
        for rows in batches:
            content: dict[str, list[Any]] = {
                column.head: [column.value(row) for row in rows] for column in columns
            }
            writer.write_table(pa.table(content, schema=schema))


_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet, ".json": _write_json}
_WORKBOOK = ".xlsx"
