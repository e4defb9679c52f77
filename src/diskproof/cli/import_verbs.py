"""Verbs that bring foreign results in: ``import kvm-perf``, ``import fio``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli.options import DEFAULT_STORE, StoreOption
from diskproof.errors import Exit, UsageError
from diskproof.fio_output.parse import MAX_BYTES

if TYPE_CHECKING:
    from diskproof.store.formats import Imported

importer = typer.Typer(no_args_is_help=True, help="Bring foreign results into the store.")

NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the study; else the file's.")
]


def register(app: typer.Typer) -> None:
    app.add_typer(importer, name="import")


@importer.command("kvm-perf")
def kvm_perf(
    file: Annotated[Path, typer.Argument(help="Results as kvm-perf publishes them.")],
    store: StoreOption = DEFAULT_STORE,
    name: NameOption = None,
) -> int:
    """Import kvm-perf's text; every printed mean and interval is checked."""
    from diskproof.store.formats import import_kvm_perf

    return _keep(import_kvm_perf(_read(file), name or file.stem), store)


@importer.command("fio")
def fio(
    files: Annotated[list[Path], typer.Argument(help="fio's output, json or json+.")],
    store: StoreOption = DEFAULT_STORE,
    name: NameOption = None,
) -> int:
    """Import fio's own output; the same job in several files makes repeats."""
    from diskproof.store.formats import import_fio
    from diskproof.store.formats.fio import MAX_FILES, MAX_TOTAL

    contents, left = [], MAX_TOTAL
    for file in files[: MAX_FILES + 1]:
        content = _read(file, min(left, MAX_BYTES))
        contents.append((str(file), content))
        left -= len(content)
    return _keep(import_fio(contents, name or files[0].stem), store)


def _read(file: Path, most: int = MAX_BYTES) -> bytes:
    from diskproof.study.toml_lines import read_bytes

    try:
        return read_bytes(file, most)
    except OSError as error:
        raise UsageError(f"cannot read {file}", error.strerror or "") from None
    except ValueError as error:  # a device, a pipe that does not end, too large
        raise UsageError(f"cannot read {file}", str(error), "import files, in parts") from None


def _keep(imported: Imported, place: str) -> int:
    from diskproof.cli.terminal import note
    from diskproof.store import open_store

    if not imported.runs:
        why = next(reversed(imported.notes), "")
        raise UsageError("there is no result to import", why, "docs/import.md says what is read")
    with open_store(place, create=True) as store:
        store.add_imported(imported.study, imported.host, imported.runs)
    for text in imported.notes:
        note(text)
    cells = len(imported.study.cells)
    print(f"study {imported.study.name}: {cells} cells, {len(imported.runs)} runs, in {place}")
    return Exit.OK
