"""factors and stability from a store alone: the words, the JSON and the page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli import run_command_line
from diskproof.records import Cell, WorkloadSpec
from diskproof.report.analysis import read_analyses
from diskproof.report.factors.words import alias_words, effect_words, fold
from diskproof.report.labels import change, order_levels
from diskproof.report.page import render_page
from diskproof.report.proving import power_line
from diskproof.report.read import read_views
from diskproof.report.stability.words import steady_words, variance_lines
from diskproof.stats.design import Alias
from diskproof.stats.level_effects import LevelEffect
from diskproof.stats.power import find_power
from diskproof.stats.steady_state import judge_steady_state
from diskproof.stats.variance import VarianceLevels
from diskproof.store import open_store
from support.report_views import HOSTILE
from support.simulated_stores import fill, simulated_cells

PUBLISHED = Path(__file__).parent / "golden" / "kvm-perf-sample.txt"
FACTORS = {
    "cache": ("none", "writeback", "unsafe"),
    "format": ("raw", "qcow2"),
    "frontend": ("daemon", "guest"),
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve cells and a baseline in eight blocks, on a host that loses 3 % in 1,000 s."""
    path = tmp_path_factory.mktemp("analysis") / "s.sqlite"
    cells = [*simulated_cells({"frontend": ("host",)}), *simulated_cells(FACTORS)]
    return fill(path, cells, blocks=8, drift=-0.03, seed=11)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "k.sqlite"
    assert run_command_line(["import", "kvm-perf", str(PUBLISHED), "--store", str(path)]) == 0
    return path


def loads(
    capsys: pytest.CaptureFixture[str], verb: str, store: Path, *options: str
) -> dict[str, Any]:
    assert run_command_line([verb, "--store", str(store), "--json", *options]) == 0
    (study,) = json.loads(capsys.readouterr().out)
    return {load["workload"]: load for load in study["workloads"]}


def test_factors_know_the_simulated_truth(
    simulated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = loads(capsys, "factors", simulated)["rand-read"]
    effects = {each["level"]: each for each in load["effects"]}
    for level, truth in (("writeback", 1.6), ("unsafe", 2.5), ("qcow2", 0.9)):
        assert effects[level]["low"] < truth < effects[level]["high"]
        assert effects[level]["method"] == "matched"
    cells = 0.35 * (1.6 * 2.5) ** (1 / 3) * 0.9**0.5
    assert effects["guest"]["ratio"] == pytest.approx(cells, rel=0.1)
    assert load["inseparable"] == [] and load["noise"] == "repeats"
    assert {each["term"][0] for each in load["terms"][:2]} == {"cache", "frontend"}


def test_a_chosen_base_turns_the_ratio(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = loads(capsys, "factors", simulated, "--base", "cache=writeback")["rand-read"]
    effects = {each["level"]: each for each in load["effects"] if each["factor"] == "cache"}
    assert set(effects) == {"none", "unsafe"}
    assert effects["none"]["ratio"] == pytest.approx(1 / 1.6, rel=0.05)


def test_published_results(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the article says: unsafe and writeback are fast, ide is slow; first writes are slower,
    far more than first reads."""
    write = loads(capsys, "factors", published, "--workload", "write")["write"]
    effects = {each["level"]: each for each in write["effects"]}
    assert effects["unsafe"]["high"] < 0.6 and effects["ide"]["low"] > 1.2
    assert "faster than none" in effects["writeback"]["text"]
    assert any(each["term"] == ["format", "preallocation"] for each in write["inseparable"])
    found = loads(capsys, "stability", published)
    first = {name: load["first_run"][0] for name, load in found.items()}
    assert first["write"]["ratio"] > 1.1 and first["write"]["p"] < 0.05
    assert first["write"]["ratio"] > first["read"]["ratio"] > 1
    levels = [each["level"] for each in found["write"]["first_run"]]
    assert levels == [None, "off", "metadata"]
    assert found["write"]["drift"] is None and found["write"]["steady_state"] == []
    assert all(each["where"].startswith("run ") for each in found["write"]["outliers"])


def test_stability_of_a_drifting_host(simulated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = loads(capsys, "stability", simulated)["rand-read"]
    drift = load["drift"]
    assert drift["high"] < 1 and drift["p"] < 0.05 and len(drift["blocks"]) == 8
    assert drift["per_hour"] == pytest.approx(2.718281828 ** (-0.03 * 3.6), rel=0.05)
    assert len(load["steady_state"]) == 13
    assert {each["verdict"] for each in load["steady_state"]} == {"measured"}
    assert load["variance"]["run_cv"] == pytest.approx(0.03, rel=0.3)
    assert load["variance"]["inside_share"] is not None and load["variance"]["advice"]


def test_the_terminal_shows_it(
    simulated: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["factors", "--store", str(simulated)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"cache: writeback is 1\.[56]\dx \[1\.\d+, 1\.\d+\] faster than none", text)
    assert "Where repeats pay" in text
    assert run_command_line(["factors", "--store", str(published)]) == 0
    assert "These cells cannot separate" in capsys.readouterr().out
    assert run_command_line(["stability", "--store", str(simulated)]) == 0
    assert "the host became slower" in capsys.readouterr().out
    assert run_command_line(["stability", "--store", str(published)]) == 0
    assert "no run stands out" in capsys.readouterr().out


def test_the_page_shows_it(simulated: Path) -> None:
    with open_store(str(simulated)) as store:
        page = render_page(read_views(store, details=True))
    for text in ("Which setting matters", "How steady it was", "faster than none", "% of the mean"):
        assert text in page
    assert "NaN" not in page.split('type="application/gzip"')[0]
    inks = set(re.findall(r'<text[^>]* fill="([^"]+)"', page))
    assert inks <= {"currentColor", "#111", "#fff"}  # the latter two stand on their own ground


def test_names_of_others_stay_text(tmp_path: Path) -> None:
    """Levels, workloads and studies may hold anything."""
    cells = [
        replace(cell, workload=replace(cell.workload, name=HOSTILE))
        for cell in simulated_cells({"cache": ("none", HOSTILE), "format": ("raw", "qcow2")})
    ]
    fill(tmp_path / "h.sqlite", cells, blocks=3)
    with open_store(str(tmp_path / "h.sqlite")) as store:
        page = render_page(read_views(store, details=True))
    assert "<script>alert" not in page and "<img src=x" not in page
    for verb in ("factors", "stability"):
        assert run_command_line([verb, "--store", str(tmp_path / "h.sqlite")]) == 0


def test_one_cell_has_no_factors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "o.sqlite", simulated_cells({"cache": ("none",)}), blocks=1)
    with open_store(str(tmp_path / "o.sqlite")) as store:
        (study,) = read_analyses(store)
        assert study.loads[0].factors.analysis is None
        assert study.loads[0].stability.drift is None
        assert "Which setting matters" not in render_page(read_views(store, details=True))
    for verb in ("factors", "stability"):
        assert run_command_line([verb, "--store", str(tmp_path / "o.sqlite")]) == 0
        assert run_command_line([verb, "--store", str(tmp_path / "o.sqlite"), "--json"]) == 0
    assert "no factor to judge" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--study", "x"), "no study 'x'"),
        (("--workload", "x"), "no workload 'x'"),
        (("--base", "colour=red"), "no factor 'colour'"),
        (("--base", "cache=red"), "no cell with cache=red"),
        (("--base", "cache"), "is not FACTOR=LEVEL"),
    ],
)
def test_what_is_not_there_is_explained(
    simulated: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    assert run_command_line(["factors", "--store", str(simulated), *options]) == 2
    assert said in capsys.readouterr().err


def test_levels_stand_in_their_natural_order() -> None:
    load = WorkloadSpec("w", "fio")
    cells = [
        Cell((("cache", cache), ("cluster_size", size), ("own", own)), load)
        for cache, size, own in (
            ("unsafe", "2M", "z"),
            ("none", "64K", "a"),
            ("writeback", "128K", "z"),
        )
    ]
    ordered = order_levels(cells)
    assert ordered["cache"] == ("none", "writeback", "unsafe")
    assert ordered["cluster_size"] == ("64K", "128K", "2M")
    assert ordered["own"] == ("z", "a")
    assert order_levels(cells, {"cache": "unsafe"})["cache"][0] == "unsafe"


def level_effect(ratio: float, low: float, high: float, p: float) -> LevelEffect:
    return LevelEffect("cache", "x", "none", "matched", ratio, low, high, p, 2, low, high)


def test_words_of_an_effect() -> None:
    faster = level_effect(1.5, 1.4, 1.6, 0.001)
    assert effect_words(faster, True) == "1.50x [1.40, 1.60] faster than none"
    assert effect_words(faster, False) == "1.50x [1.40, 1.60] slower than none"
    slower = level_effect(0.5, 0.4, 0.8, 0.001)
    assert effect_words(slower, True) == "2.00x [1.25, 2.50] slower than none"
    assert effect_words(level_effect(1, 0.9, 1.1, 0.9), True).startswith("not told apart")
    assert fold(23.4) == "23x" and fold(float("inf")) == "?"
    assert change(1.042) == "+4.2 %" and change(0.5) == "-50 %"
    alias = Alias(("a", "b"), 1, 1, tuple((str(n), "z") for n in range(6)))
    assert alias_words(alias).endswith("and 2 more")


def test_words_of_steady_state_and_advice() -> None:
    assert "not reached" in steady_words(judge_steady_state([1.0, 2.0] * 5))
    assert "too short" in steady_words(judge_steady_state([1.0]))
    assert "more rounds are needed" in steady_words(judge_steady_state([1.0] * 6))
    assert "1 more round is needed" in steady_words(judge_steady_state([1.0] * 9))
    longer = variance_lines(VarianceLevels(30, 0.02, 0.05, 0.049, 5.0, 20.0))
    assert any("longer runs pay" in line for line in longer)
    shorter = variance_lines(VarianceLevels(30, 0.0, 0.05, 0.005, 60.0, 20.0))
    assert any("shorter runs pay" in line for line in shorter)
    unsteady = variance_lines(VarianceLevels(30, 0.0, 0.05, 0.005, 60.0, 20.0), False)
    assert not any("shorter runs pay" in line for line in unsteady)
    assert any("shorter runs do not" in line for line in unsteady)
    assert variance_lines(VarianceLevels(5, None, None, None, None, None))[0].startswith("no cell")


def test_a_number_of_blocks_that_nobody_runs_is_not_advised() -> None:
    few = power_line(find_power((0.03,) * 24, 3), 60.0)
    assert few.endswith("5 % takes 21, 18 min 0 s more")
    wild = power_line(find_power((1.4,) * 8, 3), 60.0)
    assert (
        wild == "3 blocks tell no two cells apart as a rule; 5 % would take more than 1000 blocks"
    )
