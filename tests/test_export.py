"""Tables out of a store, read back by other means. The full disk needs root."""

import csv
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from diskproof.errors import HostError, UsageError
from diskproof.store import Store, open_store
from diskproof.store.export import export_table
from diskproof.store.export_rows import Kind
from diskproof.store.formats.kvm_perf import import_kvm_perf
from diskproof.store.show import show_rows
from support.memory_disks import start_memory_disk
from support.simulate import SimulatedExecutor, Simulation, run_study, start_store
from test_lab import SCHEDULE, STUDY

SAMPLE = (Path(__file__).parent / "golden" / "kvm-perf-sample.txt").read_bytes()
SUFFIXES = (".csv", ".json", ".parquet")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A simulated study with failed runs, and an imported one."""
    folder = tmp_path_factory.mktemp("store")
    with start_store(folder / "s.sqlite") as opened:
        executor = SimulatedExecutor(STUDY.id, Simulation(failure_rate=0.1))
        run_study(STUDY, SCHEDULE, executor, opened)
        found = import_kvm_perf(SAMPLE, "kvm-perf")
        opened.add_imported(found.study, found.host, found.runs)
        yield opened


def flat(row: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    return found


def parse_field(text: str) -> object:
    """A CSV field as what it was before it was text."""
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return text
    return text if isinstance(found, float) and math.isinf(found) else found  # an id: 30e603631940


def read_table(path: Path) -> list[dict[str, Any]]:
    """Rows without the fields that are missing in them."""
    if path.suffix == ".json":
        rows = [flat(row) for row in json.loads(path.read_text())]
    elif path.suffix == ".csv":
        with path.open(newline="") as stream:
            rows = [{k: parse_field(v) for k, v in r.items()} for r in csv.DictReader(stream)]
    else:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    return [{k: v for k, v in row.items() if v is not None} for row in rows]


def as_read(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    """What a row must be read as from this kind of file: text that looks like a number is one
    after CSV."""
    known = {k: v for k, v in flat(row).items() if v is not None}
    if path.suffix != ".csv":
        return known
    return {k: parse_field(v) if isinstance(v, str) else v for k, v in known.items()}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_results_are_those_that_show_prints(store: Store, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"results{suffix}"
    export_table(store, [], "results", path)
    names = {study.id: study.name for study in store.studies()}
    expected = [
        as_read(path, {"study_name": names[str(row["study"])], **row})
        for row in show_rows(store.results(), store.figures(store.results()), store.studies())
    ]
    assert read_table(path) == expected and len(expected) > 42


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_runs_have_their_metrics_and_failures(store: Store, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"runs{suffix}"
    export_table(store, [STUDY.name], "runs", path)
    rows = read_table(path)
    assert [str(row["run"]) for row in rows] == [run.id for run in store.runs(STUDY.id)]
    values = {
        (run_id, result.metric): value
        for result in store.results(STUDY.id)
        for run_id, value in zip(result.run_ids, result.values, strict=True)
    }
    shown = {
        (str(row["run"]), name.removeprefix("metrics.")): value
        for row in rows
        for name, value in row.items()
        if name.startswith("metrics.")
    }
    assert shown == values
    failed = [row for row in rows if row["status"] == "failed"]
    assert failed and all("simulated load failed" in row["failure"] for row in failed)
    assert {row["cell.cache"] for row in rows if "cell.cache" in row} == {
        "none", "writeback", "unsafe",
    }  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_series_have_a_row_a_reading(store: Store, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"series{suffix}"
    export_table(store, [STUDY.id], "series", path)
    rows = read_table(path)
    expected = [
        (run.id, series.name, time, value)
        for run in store.runs(STUDY.id)
        for series in store.series_of(run.id)
        for time, value in zip(series.times, series.values, strict=True)
    ]
    assert expected
    assert [(str(r["run"]), r["name"], r["time"], r["value"]) for r in rows] == expected


@pytest.mark.parametrize("kind", ["results", "runs", "series"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_store_gives_an_empty_table(tmp_path: Path, kind: Kind, suffix: str) -> None:
    path = tmp_path / f"none{suffix}"
    with open_store(str(tmp_path / "s.sqlite"), create=True) as empty:
        export_table(empty, [], kind, path)
    assert read_table(path) == []
    if suffix == ".csv":
        assert path.read_text().startswith("study,")


def test_csv_to_standard_output(store: Store, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    export_table(store, ["kvm-perf"], "results", Path("-"))
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 43 and lines[0].startswith("study,study_name,host,workload,cell.aio")


def test_a_reader_that_closes_early_is_no_fault_of_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        with pytest.raises(BrokenPipeError):
            export_table(store, ["kvm-perf"], "runs", Path("-"))
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            closed.buffer.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())


def test_a_name_without_a_known_suffix_is_refused_with_the_three(store: Store) -> None:
    for name in ("results", "results.xls", ".csv"):
        with pytest.raises(UsageError) as caught:
            export_table(store, [], "results", Path(name))
        assert ".csv, .parquet, .json" in caught.value.why and caught.value.hint


def test_an_unknown_study_and_a_study_named_twice(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no study 'nope'") as caught:
        export_table(store, ["nope"], "results", tmp_path / "x.csv")
    assert "kvm-perf" in caught.value.why
    assert list(tmp_path.iterdir()) == []
    export_table(store, [STUDY.name, STUDY.id], "runs", tmp_path / "x.json")
    assert len(read_table(tmp_path / "x.json")) == len(SCHEDULE)


def test_a_link_is_followed_and_permissions_are_usual(store: Store, tmp_path: Path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to("target.csv")
    export_table(store, [], "results", link)
    assert link.is_symlink() and (tmp_path / "target.csv").is_file()
    mask = os.umask(0o022)
    os.umask(mask)
    assert (tmp_path / "target.csv").stat().st_mode & 0o777 == 0o666 & ~mask


def test_places_that_cannot_be_written(store: Store, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be written"):
        export_table(store, [], "results", tmp_path / "no" / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        export_table(store, [], "results", tmp_path / "folder.csv")
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="no file that could be replaced"):
        export_table(store, [], "results", pipe)
    assert pipe.is_fifo()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_file_and_no_half_one(
    store: Store, tmp_path: Path, suffix: str
) -> None:
    with start_memory_disk(tmp_path / "small", "size=16k") as point:
        old = point / f"results{suffix}"
        old.write_text("the old one")
        with pytest.raises(HostError, match="cannot be written") as caught:
            export_table(store, [], "results", old)
        assert "No space left" in caught.value.why
        assert old.read_text() == "the old one"
        assert list(point.iterdir()) == [old]


def test_figures_survive_to_the_last_digit(store: Store, tmp_path: Path) -> None:
    results = store.results("kvm-perf")
    means = [row["mean"] for row in show_rows(results, store.figures(results), [])]
    for suffix in SUFFIXES:
        export_table(store, ["kvm-perf"], "results", tmp_path / f"x{suffix}")
        read = [row["mean"] for row in read_table(tmp_path / f"x{suffix}")]
        assert read == means and all(map(math.isfinite, read))
