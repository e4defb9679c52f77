"""What ``import`` and ``report`` are given in place of what they expect: no file, too large a file,
a study that fills what it may, the last of the memory."""

import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.fio_output.parse import MAX_BYTES
from diskproof.process.start import Completed, run
from diskproof.records import Artefact, Cell, Check, Dropped, Failure, WorkloadSpec
from diskproof.report.page import most_bytes, render_page
from diskproof.report.read import read_views
from diskproof.store import open_store
from diskproof.store.budget import VARIABLE
from support.commands import diskproof
from test_store import EMPTY, FULL, HOST

FORMATS = ("fio", "kvm-perf")


def bring_in(folder: Path, *words: str) -> Completed:
    return diskproof("import", *words, "--store", "s.sqlite", cwd=folder, timeout=100)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_no_file_is_refused_soon(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    with (tmp_path / "huge").open("wb") as stream:
        stream.truncate(1 << 40)
    told = {"link": "not a file", "/dev/zero": "not a file", "huge": f"{MAX_BYTES >> 10} KiB"}
    told |= {".": "Is a directory", "none": "No such file", "pipe": "diskproof: "}
    for name, why in told.items():
        done = bring_in(tmp_path, kind, name)
        assert done.returncode == 2 and why in done.error_text, (name, done.error_text)
    assert not (tmp_path / "s.sqlite").exists()


def test_a_pipe_that_drips_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with _dripping(tmp_path / "pipe"):
        began = time.monotonic()
        done = bring_in(tmp_path, "fio", "pipe")
    assert done.returncode == 2 and "did not end within 5 s" in done.error_text
    assert time.monotonic() - began < 60


@contextmanager
def _dripping(pipe: Path) -> Iterator[None]:
    child = os.fork()
    if child == 0:
        try:
            out = os.open(pipe, os.O_WRONLY)
            while True:
                os.write(out, b" ")
                time.sleep(0.2)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_files_that_are_too_much_together_are_not_all_read(tmp_path: Path) -> None:
    for number in range(9):
        with (tmp_path / str(number)).open("wb") as stream:
            stream.truncate(MAX_BYTES - 1)
    done = bring_in(tmp_path, "fio", *map(str, range(9)))
    assert done.returncode == 2 and "too much memory" in done.error_text


def test_the_kernel_refuses_what_the_budget_would_allow(tmp_path: Path) -> None:
    """The budget is opened wide, the limit of the kernel is not: a sentence all the same."""
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        store.add_study(EMPTY)
        store.add_host(HOST)
        store.add_run(FULL)
    bomb = zlib.compress(bytes(8 * 4_900_000), 9)
    with closing(sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)) as connection:
        rows = [(1, place, "fio", "iops", "1/s", bomb, bomb) for place in range(10, 20)]
        connection.executemany("insert into series values (?, ?, ?, ?, ?, ?, ?)", rows)
    argv = [sys.executable, "-m", "diskproof", "export", "--kind", "series", "-o", "t.csv"]
    limited = ["prlimit", f"--data={300 << 20}", *argv, "--store", "s.sqlite"]
    env = {**os.environ, VARIABLE: "8GiB"}
    done = run(limited, timeout=100, cwd=tmp_path, env=env, check=False)
    assert (done.returncode, done.error_text.splitlines()[0]) == (
        2,
        "diskproof: what is to be read takes too much memory",
    )
    assert not (tmp_path / "t.csv").exists()


def test_a_page_is_no_larger_than_its_study_justifies(tmp_path: Path) -> None:
    """Every text is as long as a store takes it, and there are as many of them."""
    long, most = "w" * (64 << 10), 1000
    levels = tuple((f"factor-{n:03}", f"{n}" + '\u00e4"<' * 300) for n in range(40))
    cells = tuple(
        Cell((("a", str(n)), *levels), WorkloadSpec("n" * 200, "fio", (("o", "v" * 100_000),)))
        for n in range(3)
    )
    check = Check("c" * 200, long[:1500], "e" * 1500, "s" * 200, True)
    dropped = tuple(Dropped(long[:1000], 1, (("a", "b"),)) for _ in range(3000))
    study = replace(
        EMPTY,
        name="S" * 200,
        text="t" * (4 << 20),
        blocks=2,
        cells=cells,
        dropped=dropped,
        warnings=tuple(f"{n} {long[:1000]}" for n in range(3000)),
    )
    host = replace(HOST, facts={f"f{n}": "y" * 1000 for n in range(3000)})
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        store.add_study(study)
        store.add_host(host)
        for block, cell in [(block, cell) for block in range(2) for cell in cells]:
            run_id = f"{block}{cell.id}" + "r" * 180
            made = replace(FULL, id=run_id, cell=cell, block=block, checks=(check,) * most)
            if (block, cell) == (1, cells[0]):
                failure = Failure("tool", long, long, long)
                log = Artefact("console", "text/plain", b"x" * (8 << 20))
                made = replace(made, status="failed", failure=failure, artefacts=(log,))
            store.add_run(made)
        views = read_views(store, details=True)
    page = render_page(views)
    assert len(page) < 3 << 20 < most_bytes(views, 0, 0)
    assert " [cut]" in page and "and 940 more" in page
