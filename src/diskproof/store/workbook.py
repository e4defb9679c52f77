"""Results as a spreadsheet: sheets of results, runs and tiles, and for iozone one a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from diskproof.errors import UsageError
from diskproof.records import StudyRecord
from diskproof.store.database import Store
from diskproof.store.export_rows import ExportColumn, Kind, table_columns, table_rows
from diskproof.store.grids import KIND, Grid, read_grids, size_of
from diskproof.store.rows import ResultRow

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.worksheet import Worksheet

MAX_ROWS = 1 << 20  # of a sheet, by the format; its first one has the names
MAX_COLUMNS = 1 << 14
MAX_TEXT = 32_767
_OPTIONS = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
_COMMANDS = "=+-@\t\r"


def write_workbook(stream: IO[bytes], store: Store, studies: Sequence[StudyRecord]) -> None:
    """Write some studies as one XLSX. No text becomes a formula, whatever it starts with.

    Raises UsageError when there is more than a sheet can hold.
    """
    from xlsxwriter import Workbook

    with Workbook(stream, _OPTIONS) as book:
        text = book.add_format({"quote_prefix": True})
        tiles = any(store.tile_runs(study.id) for study in studies)
        kinds: tuple[Kind, ...] = ("results", "runs", *(("tiles",) if tiles else ()))
        for kind in kinds:
            _write_table(book, text, store, studies, kind)
        for number, rows in enumerate(_iozone_cells(store, studies), 1):
            _write_grids(book, text, f"iozone {number}", rows)


def _write_table(
    book: Workbook, text: Any, store: Store, studies: Sequence[StudyRecord], kind: Kind
) -> None:
    columns = [each for each in table_columns(store, studies, kind) if each.type != "numbers"]
    if len(columns) > MAX_COLUMNS:
        raise _too_large(f"{len(columns)} columns")
    sheet = _add_sheet(book, kind, [column.head for column in columns])
    place = 0
    for rows in table_rows(store, studies, kind):
        for row in rows:
            place += 1
            if place >= MAX_ROWS:
                raise _too_large(f"more than {MAX_ROWS - 1} {kind}")
            values = [column.value(row) for column in columns]
            _write_row(sheet, text, place, columns, values)
    if place:
        sheet.autofilter(0, 0, place, len(columns) - 1)


def _add_sheet(book: Workbook, name: str, heads: Sequence[str]) -> Worksheet:
    sheet = book.add_worksheet(name)
    bold = book.add_format({"bold": True, "quote_prefix": True})
    for column, head in enumerate(heads):
        sheet.write_string(0, column, head[:MAX_TEXT], bold)
        sheet.set_column(column, column, min(40, max(9, len(head) + 2)))
    sheet.freeze_panes(1, 0)
    return sheet


def _write_row(
    sheet: Worksheet, text: Any, row: int, columns: Sequence[ExportColumn], values: Sequence[object]
) -> None:
    for place, (column, value) in enumerate(zip(columns, values, strict=True)):
        if value is None:
            continue
        if column.type == "text":
            _write_text(sheet, row, place, str(value), text)
        elif column.type == "flag":
            sheet.write_boolean(row, place, bool(value))
        else:
            _write_number(sheet, row, place, value)


def _write_text(sheet: Worksheet, row: int, column: int, value: str, text: Any) -> None:
    """As text, and so that it stays text when somebody edits the field."""
    prefix = text if value.startswith(tuple(_COMMANDS)) else None
    sheet.write_string(row, column, value[:MAX_TEXT], prefix)


def _write_number(sheet: Worksheet, row: int, column: int, value: object) -> None:
    """What is not finite has no spelling in a sheet and stays empty."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        sheet.write_number(row, column, value)


# -- iozone ---------------------------------------------------------------------------------


def _iozone_cells(
    store: Store, studies: Sequence[StudyRecord]
) -> Iterator[tuple[StudyRecord, tuple[ResultRow, ...]]]:
    """The rows of each cell on each host that has grids."""
    for study in studies:
        cells: dict[tuple[str, str], list[ResultRow]] = {}
        for row in store.results(study.id):
            if row.cell.workload.kind == KIND:
                cells.setdefault((row.cell.id, row.host_id), []).append(row)
        yield from ((study, tuple(rows)) for rows in cells.values() if read_grids(rows))


def _write_grids(
    book: Workbook, text: Any, name: str, cell: tuple[StudyRecord, tuple[ResultRow, ...]]
) -> None:
    """Who and what first, then the grids below each other."""
    study, rows = cell
    first = rows[0]
    sheet = book.add_worksheet(name)
    facts = [("study", study.name), ("host", first.host_id), ("workload", first.cell.workload.name)]
    place = 0
    for key, value in [*facts, *first.cell.levels]:
        _write_text(sheet, place, 0, key, text)
        _write_text(sheet, place, 1, value, text)
        place += 1
    for grid in read_grids(rows):
        place = _write_grid(book, sheet, place + 1, grid)


def _write_grid(book: Workbook, sheet: Worksheet, top: int, grid: Grid) -> int:
    """A grid as iozone lays it out: file sizes down and record sizes across, in KiB. Coloured by
    value. Returns the row after it."""
    bold = book.add_format({"bold": True})
    title = f"{grid.test}, {grid.unit} (file size in KiB down, record size in KiB across)"
    sheet.write_string(top, 0, title, bold)
    for column, record in enumerate(grid.records, 1):
        sheet.write_number(top + 1, column, size_of(record) / 1024, bold)
    for row, file in enumerate(grid.files, top + 2):
        sheet.write_number(row, 0, size_of(file) / 1024, bold)
        for column, record in enumerate(grid.records, 1):
            _write_number(sheet, row, column, grid.means.get((record, file)))
    last = top + 1 + len(grid.files)
    colours = {"type": "3_color_scale"}
    sheet.conditional_format(top + 2, 1, last, len(grid.records), colours)
    return last + 1


def _too_large(what: str) -> UsageError:
    return UsageError(f"{what} do not fit in a spreadsheet", hint="export -o FILE.csv")
