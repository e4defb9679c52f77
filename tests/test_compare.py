"""compare: what A and B may name, the verdicts, and the exit code of a gate."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli import run_command_line
from diskproof.records import HostRecord
from support.simulated_stores import DAY, fill, simulated_cells

PUBLISHED = Path(__file__).parent / "golden" / "kvm-perf-sample.txt"
CELLS = simulated_cells()
SLOWER = {("frontend", "daemon"): 0.93}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """before, equal, slower; and one store with two studies, hosts and days."""
    folder = tmp_path_factory.mktemp("stores")
    fill(folder / "before.sqlite", CELLS, seed=1)
    fill(folder / "equal.sqlite", CELLS, seed=2)
    fill(folder / "slower.sqlite", CELLS, seed=3, speed=SLOWER)
    fill(folder / "part.sqlite", CELLS[:3], seed=4, blocks=1)
    both = folder / "both.sqlite"
    fill(both, CELLS, seed=5, name="old")
    other = HostRecord("other-host", "lab-two", {"simulated": True})
    fill(both, CELLS, seed=6, name="new", host=other, speed=SLOWER, started=1e9 + 3 * DAY)
    return folder


def run(
    capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str
) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON; names of stores are taken from the folder."""
    named = [str(folder / text) if text.endswith(".sqlite") else text for text in arguments]
    code = run_command_line(["compare", *named, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def test_a_slower_store_fails_the_gate(stores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, stores, "before.sqlite", "slower.sqlite")
    assert code == 1 and found["regression"] is True
    assert [each["verdict"] for each in found["comparisons"]] == ["slower"] * 5
    together = found["comparisons"][-1]
    assert together["cell_a"] is None and together["ratio"] == pytest.approx(0.93, abs=0.02)
    assert together["low"] < 0.93 < together["high"] and together["method"] == "welch"
    assert any("not what varies between days" in note for note in found["notes"])
    back, turned = run(capsys, stores, "slower.sqlite", "before.sqlite")
    assert back == 0 and {e["verdict"] for e in turned["comparisons"]} == {"faster"}


def test_an_equal_store_passes(stores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, stores, "before.sqlite", "equal.sqlite", "--delta", "10%")
    assert code == 0 and found["delta"] == pytest.approx(0.1)
    assert {each["verdict"] for each in found["comparisons"]} == {"same"}
    code, found = run(capsys, stores, "before.sqlite", "equal.sqlite", "--delta", "0.001")
    assert code == 0
    undecided = [e for e in found["comparisons"] if e["verdict"] == "undecided"]
    assert undecided and all(e["further_runs"] is None or e["further_runs"] > 0 for e in undecided)


def test_cells_are_paired_by_block(stores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ("--store", "before.sqlite")
    code, found = run(capsys, stores, "cache=none", "cache=writeback", *store)
    assert code == 0
    assert [each["method"] for each in found["comparisons"]] == ["paired"] * 3
    assert all(each["ratio"] == pytest.approx(1.6, rel=0.05) for each in found["comparisons"])
    code, found = run(
        capsys, stores, "cache=none,format=raw", "cache=writeback,format=qcow2", *store
    )
    (only,) = found["comparisons"]
    assert only["cell_a"]["format"] == "raw" and only["cell_b"]["format"] == "qcow2"
    assert only["ratio"] == pytest.approx(1.6 * 0.9, rel=0.05)
    code, found = run(capsys, stores, "writeback", "qcow2 writeback", *store)
    assert code == 2  # the labels are "raw writeback" and "qcow2 writeback"
    code, found = run(capsys, stores, "raw writeback", "qcow2 writeback", *store)
    assert code == 1 and found["a"]["is"] == "cell raw writeback"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("old", "new"),
        ("old-5", "new-6"),
        ("simulated", "lab-two"),
        tuple(time.strftime("%Y-%m-%d", time.localtime(1e9 + days * DAY)) for days in (0, 3)),
    ],
    ids=["studies", "ids", "hosts", "dates"],
)
def test_two_things_of_one_store(
    stores: Path, capsys: pytest.CaptureFixture[str], a: str, b: str
) -> None:
    code, found = run(capsys, stores, a, b, "--store", "both.sqlite")
    assert code == 1 and len(found["comparisons"]) == 5
    assert {each["method"] for each in found["comparisons"]} == {"welch"}
    assert all(each["n_a"] == each["n_b"] == 10 for each in found["comparisons"])


def test_single_runs_and_missing_cells(stores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, stores, "before.sqlite", "part.sqlite")
    assert code == 0
    assert {each["verdict"] for each in found["comparisons"]} == {"undecided"}
    assert {each["low"] for each in found["comparisons"]} == {None}
    assert len(found["only_in_a"]) == 1 and found["only_in_b"] == []
    assert (
        run_command_line(["compare", str(stores / "before.sqlite"), str(stores / "part.sqlite")])
        == 0
    )
    text = capsys.readouterr().out
    assert "undecided: a single run" in text and "only in A" in text


def test_a_baseline_meets_every_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = simulated_cells({"frontend": ("host",)})
    fill(tmp_path / "s.sqlite", [*baseline, *CELLS], blocks=4)
    code, found = run(capsys, tmp_path, "frontend=host", "frontend=daemon", "--store", "s.sqlite")
    assert code == 1  # the daemon is slower than the bare disk in two cells
    cells = [each for each in found["comparisons"] if each["cell_a"]]
    assert len(cells) == 4 and {each["cell_a"]["frontend"] for each in cells} == {"host"}
    assert len({each["label"] for each in cells}) == 4, "each line says which cell it is of"


def test_imported_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "k.sqlite")
    assert run_command_line(["import", "kvm-perf", str(PUBLISHED), "--store", store]) == 0
    capsys.readouterr()
    code, found = run(
        capsys, tmp_path, "cache=writeback", "cache=none", "--store", store, "--workload", "write"
    )
    assert code == 1
    cells = [each for each in found["comparisons"] if each["cell_a"]]
    assert all(each["verdict"] == "slower" and each["ratio"] > 1.4 for each in cells)
    assert {each["method"] for each in cells} == {"welch"}
    assert {each["workload"] for each in cells} == {"write"}
    labels = "qcow2 prealloc=metadata writeback native virtio-blk", "raw writeback native ide"
    code, found = run(capsys, tmp_path, *labels, "--store", store)
    assert found["a"]["is"] == f"cell {labels[0]}" and len(found["comparisons"]) == 2


def test_the_table_says_what_the_exit_code_says(
    stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command_line(
        ["compare", str(stores / "before.sqlite"), str(stores / "slower.sqlite")]
    )
    text = capsys.readouterr().out
    assert code == 1 and "B is slower than A: 4 slower" in text
    code = run_command_line(
        ["compare", str(stores / "before.sqlite"), str(stores / "equal.sqlite")]
    )
    assert code == 0 and "No regression is proved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing", "old"), "is no store, study, host, date or cell"),
        (("cache=writebck", "cache=none"), "no cell with cache=writebck"),
        (("colour=red", "cache=none"), "no cell has a factor 'colour'"),
        (("2001-01-01", "old"), "no run was made on 2001-01-01"),
        (("befor.sqlite", "old"), "no store at"),
        (("old", "new", "--workload", "x"), "have no cell in common"),
        (("old", "new", "--metric", "x"), "have no cell in common"),
        (("old", "new", "--study", "x"), "no study 'x'"),
        (("old", "new", "--delta", "2"), "no share between 0 and 1"),
        (("old", "new", "--delta", "nan"), "no share between 0 and 1"),
        (("cache=none", "cache=writeback,format=raw"), "name that level on this side"),
    ],
)
def test_what_cannot_be_compared_is_explained(
    stores: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code = run_command_line(["compare", *arguments, "--store", str(stores / "both.sqlite")])
    captured = capsys.readouterr()
    assert code == 2 and said in captured.err and captured.out == ""


def test_what_is_compared_with_itself_is_refused(
    stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(capsys, stores, "before.sqlite", "before.sqlite")
    assert code == 2
    assert run_command_line(["compare", "new", "new", "--store", str(stores / "both.sqlite")]) == 2
    told = capsys.readouterr().err
    assert "'new' and 'new' are the same: study new (" in told and "name two of them by id" in told


def test_a_side_that_drops_flushes_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = simulated_cells({"frontend": ("daemon",), "cache": ("none", "unsafe")})
    fill(tmp_path / "u.sqlite", cells, seed=1)
    arguments = ["compare", "cache=none", "cache=unsafe", "--store", str(tmp_path / "u.sqlite")]
    assert run_command_line([*arguments, "--json"]) in (0, 1)
    (line,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert line["drops_flushes"] == [False, True] and line["crash_b"] == "drops flushes"
    assert run_command_line(arguments) in (0, 1)
    told = " ".join(capsys.readouterr().out.split())
    assert "in a crash: A: not judged, B: drops flushes" in told
    assert "Cells of B drop flushes: what a program was promised may be lost" in told
