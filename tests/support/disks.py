"""Cells, images and drives for tests of the frontends."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.backings import NO_CONSENT, start_disk_dir
from diskproof.drive import Drive, Execution, RunContext
from diskproof.frontends import load_frontend
from diskproof.qemu.images import create_image
from diskproof.records import BackingSpec, Cell, WorkloadSpec

SIZE = 16 << 20


def make_cell(**levels: str) -> Cell:
    """A cell; ``_`` in a factor's name stands for ``-`` where the factor has that."""
    names = {"l2_cache_size": "l2-cache-size", "detect_zeroes": "detect-zeroes"}
    named = ((names.get(name, name), level) for name, level in levels.items())
    return Cell(tuple(sorted(named)), WorkloadSpec("w", "fio"))


@contextmanager
def start_context(folder: Path, cell: Cell, accel: str = "tcg") -> Iterator[RunContext]:
    """A fresh image of ``SIZE`` bytes in a run's folder below ``folder``."""
    spec = BackingSpec("d", "directory", (("path", str(folder)),), make=True)
    with start_disk_dir(spec, NO_CONSENT) as run_dir:
        yield RunContext(cell, create_image(run_dir, cell, SIZE), run_dir, accel)


@contextmanager
def start_drive(folder: Path, **levels: str) -> Iterator[Drive]:
    """The cell's drive in service, on a fresh image."""
    cell = make_cell(**levels)
    with start_context(folder, cell) as context:
        with load_frontend(cell.level("frontend")).start(context) as drive:
            yield drive


def run_fio(drive: Drive, **options: str) -> Execution:
    """One fio job on a drive: 64 writes of 4 KiB unless ``options`` say otherwise."""
    job = {"rw": "write", "bs": "4k", "size": "256k", "thread": "1"}
    lines = {**job, **drive.facts.fio, **options}
    text = "[job]\n" + "".join(f"{name}={value}\n" for name, value in lines.items())
    argv = ["fio", "--output-format=json", "--output=out.json", "job.fio"]
    return drive.execute(
        argv, timeout=120, files={"job.fio": text.encode()}, collect=["out.json", "missing"]
    )


def read_ios(done: Execution, direction: str) -> int:
    """How many I/Os fio counted."""
    text = done.files["out.json"]
    return int(json.loads(text[text.index(b"{\n") :])["jobs"][0][direction]["total_ios"])
