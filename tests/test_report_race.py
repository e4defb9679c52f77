"""Races in words, as JSON, as a picture and on the page."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from diskproof.records import StudyRecord
from diskproof.report.analysis import read_analyses
from diskproof.report.compare.find import ALL_CELLS, compare_sides
from diskproof.report.compare.sides import find_side
from diskproof.report.factors.table import analyses_json
from diskproof.report.page import render_page
from diskproof.report.race.chart import MAX_LANES, race_chart
from diskproof.report.race.page import race_lines
from diskproof.report.race.words import (
    drop_sentence,
    race_json,
    timeline_sentence,
    verdict_sentence,
)
from diskproof.report.read import read_views
from diskproof.report.results import render_results
from diskproof.report.study_tables import ranking_json
from diskproof.report.vega import draw_all
from diskproof.report.view import StudyView
from diskproof.stats.study_race import RaceState, replay_races, run_score, start_races
from diskproof.store import Store
from support.json_schemas import validate
from support.simulate import SimulatedExecutor, Simulation, run_study, start_store
from test_lab import make_record
from test_lab_race import SCHEDULE, STUDY, TEXT


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One race decided, one out of blocks."""
    path: Path = tmp_path_factory.mktemp("raced") / "store.sqlite"
    with start_store(path) as opened:
        executor = SimulatedExecutor(STUDY.id, Simulation(seed=3, cv=0.08))
        run_study(STUDY, SCHEDULE, executor, opened)
        yield opened


@pytest.fixture(scope="module")
def races(store: Store) -> dict[str, RaceState]:
    (view,) = read_views(store)
    return dict(view.parts["race"])


def test_a_decided_race_names_the_best_and_an_open_one_what_it_lacks(
    races: dict[str, RaceState],
) -> None:
    decided = verdict_sentence(races["rand-read-4k-d1"], STUDY)
    named = "fastest is raw unsafe io_uring (drops flushes); at 95 % no other is more than 2 %"
    assert decided.startswith(named)
    undecided = verdict_sentence(races["sync-write-4k"], STUDY)
    assert undecided.startswith("fastest so far is raw unsafe io_uring (drops flushes): ")
    blocks = len(races["sync-write-4k"].course.verdicts)
    assert f"; {blocks} blocks did not decide it, about " in undecided


@pytest.fixture(scope="module")
def likely(tmp_path_factory: pytest.TempPathFactory) -> StudyView:
    """The same races for the likely best."""
    path: Path = tmp_path_factory.mktemp("likely") / "store.sqlite"
    study, schedule = make_record(TEXT.replace('"decided"', '"likely"'))
    with start_store(path) as opened:
        executor = SimulatedExecutor(study.id, Simulation(seed=3, cv=0.05))
        run_study(study, schedule, executor, opened)
        (view,) = read_views(opened, details=True)
        return view


def test_a_likely_race_says_likely_with_the_probability_and_nothing_surer(
    likely: StudyView,
) -> None:
    for race in likely.parts["race"].values():
        said = verdict_sentence(race, likely.study)
        assert re.match(r"likely fastest is raw unsafe io_uring .*%? likely that no other is", said)
        assert "sure" not in said and not race.course.drops
        (first, second) = race_lines(race, likely)
        assert first.plain == f"race: {said}" and second.plain.startswith("race: likely within 2 %")
        told = json.loads(json.dumps(race_json(race), allow_nan=False))
        assert told["stop"] == "likely" and len(told["chances"]) == 12
        assert max(each["chance"] for each in told["chances"]) == told["probability"] > 0.95
        assert sum(len(each) for each in race.course.entries) < 12 * 5
        assert "unlikely" in timeline_sentence(race, 12)


def test_advice_after_a_likely_race_claims_no_proof(likely: StudyView) -> None:
    told = ranking_json(likely, None, 0)
    validate("rank", [told])
    for answer in told["answer"]:
        assert not answer["proved"] and answer["likely"]
        assert "likely (95 % or more), not proved" in " ".join(answer["sentences"])
    page = render_page([likely])
    assert "likely within 2 % of the best" in page and "the race went on without it" in page
    alone = [cell for cell in told["rankings"][0]["cells"] if cell["n"] == 1]
    assert alone and all(cell["rank"] is None and cell["stopped"] for cell in alone)


def test_a_table_of_means_says_that_stopped_cells_look_slower(store: Store) -> None:
    rows = [row for row in store.results(STUDY.id) if row.primary]
    console = Console(width=120)
    with console.capture() as said:
        console.print(render_results([STUDY], rows, store.figures(rows)))
    told = " ".join(said.get().split())
    assert "a race: a cell that it stopped early looks slower than it is" in told


def test_every_drop_has_its_reason(races: dict[str, RaceState]) -> None:
    for race in races.values():
        for drop in race.course.drops:
            text = drop_sentence(race, drop, STUDY)
            assert f" after block {drop.block + 1}: at " in text and "surely below" in text
            failed = replace(drop, reason="failed", rival=-1)
            assert drop_sentence(race, failed, STUDY).endswith("no run of it has worked")


def test_json_has_no_figures_that_json_lacks(races: dict[str, RaceState]) -> None:
    for race in races.values():
        told = json.loads(json.dumps(race_json(race), allow_nan=False))
        assert told["cells"] == 12 == told["racing"] + told["resting"] + len(told["dropped"])
        assert told["blocks"] == len(race.course.verdicts)


def test_the_timeline_shows_each_run_of_a_cell(races: dict[str, RaceState]) -> None:
    for race in races.values():
        rows = race_chart(race, STUDY)["data"]["values"]
        assert len(rows) == 12 and rows[0]["colour"] == "var(--best)"
        assert sum(len(row["blocks"]) for row in rows) == sum(map(len, race.course.entries))
        lasts = [row["last"] for row in rows]
        assert lasts[0] == len(race.course.verdicts) == max(lasts)
        assert draw_all([race_chart(race, STUDY)])[0].startswith("<svg")
        assert "after block 2" in timeline_sentence(race, 12)


def test_a_large_race_is_cut_to_what_a_picture_holds() -> None:
    cells = tuple(
        replace(STUDY.cells[0], levels=(("format", f"f{number}"),)) for number in range(200)
    )
    study = StudyRecord("id", "large", "run", STUDY.text, 1, 12, cells)
    scores = {
        (block, cell.id): -0.1 * place + 0.01 * ((7 * place + 3 * block) % 5)
        for block in range(3)
        for place, cell in enumerate(cells)
    }
    (race,) = replay_races(study, scores)
    assert len(race_chart(race, study)["data"]["values"]) == MAX_LANES
    assert f"The {MAX_LANES} that stayed longest." in timeline_sentence(race, MAX_LANES)


def test_a_race_before_its_first_block_has_words_and_no_picture(store: Store) -> None:
    (race, _) = start_races(STUDY, STUDY.cells)
    assert verdict_sentence(race.state(), STUDY) == "no complete block yet"
    (view,) = read_views(store, details=True)
    begun = replace(view, parts={"race": {load.name: race.state() for load in view.workloads}})
    page = render_page([begun])
    assert "<h3>Race</h3>" in page and "no complete block yet" in page


def test_terminal_and_page_tell_the_race(store: Store) -> None:
    (view,) = read_views(store, details=True)
    page = render_page([view])
    for load in view.workloads:
        race = view.parts["race"][load.name]
        (line,) = race_lines(race, view)
        assert line.plain.startswith("race: fastest")
        assert verdict_sentence(race, STUDY) in page
    assert "Who left when, and why" in page
    assert "first 2 blocks, which every cell ran whatever was seen" in page


def test_studies_in_blocks_have_no_race(store: Store) -> None:
    plain = replace(STUDY, text=STUDY.text.replace('stop = "decided"\nmax_blocks = 12', ""))
    assert replay_races(plain, {}) == ()
    assert replay_races(replace(STUDY, origin="kvm-perf"), {}) == ()


@pytest.mark.parametrize("value", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_values_without_a_logarithm_count_as_failed(value: float | None) -> None:
    assert run_score(value, True) != run_score(value, True)


def test_factors_and_compare_take_it_for_no_fixed_sample(store: Store) -> None:
    (study,) = studies_json_of(store)
    for load in study["workloads"]:
        assert load["first_blocks"] == 2 and load["runs"] <= 2 * load["cells"]
    sides = [find_side(f"cache={level}", str(store.place)) for level in ("unsafe", "none")]
    found = compare_sides(*sides, delta=0.02)
    assert any("race's boundary" in note for note in found.notes)
    for line in found.lines:
        assert line.a.looked or line.label == ALL_CELLS
        if line.label == ALL_CELLS:
            assert len(line.a.values) <= 2
        assert line.verdict.further_runs is None or line.label == ALL_CELLS


def studies_json_of(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(analyses_json(read_analyses(store))))
    return found
