"""A race of real cells, as a user meets it: stopped by its budget, gone on with, reported.

Flushed writes to memory and to a disk differ by more than any noise of a host, so that some cells
must leave, whichever of the others leads.

Requires root, fio, qemu-utils and qemu-system-common (setup/packages-demo.txt).
"""

import json
from pathlib import Path

import pytest

from diskproof.stats.study_race import replay_races
from diskproof.store import open_store
from diskproof.store.race_scores import race_scores
from support.commands import diskproof, left_behind, write_study
from support.json_schemas import validate

pytestmark = pytest.mark.long

STUDY = """
name = "real-race"
workloads = ["sync-write-4k"]
[backings.disk]
path = "images"
[backings.memory]
kind = "tmpfs"
size = "512MiB"
[factors]
frontend = "daemon"
format = "raw"
backing = ["disk", "memory"]
cache = ["writeback", "unsafe", "directsync"]
[[exclude]]
backing = "memory"
cache = "directsync"
[protocol]
stop = "decided"
delta = "20%"
max_blocks = 10
size = "16MiB"
runtime = "1s"
ramp = "0s"
"""
CELLS, MAX_BLOCKS = 5, 10


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder with a race that was stopped by its budget and gone on with; what both calls told
    of their progress."""
    folder = tmp_path_factory.mktemp("raced")
    study = write_study(folder, STUDY)
    first = diskproof("run", study, "--budget", "6s", cwd=folder)
    assert first.returncode == 0, first.error_text
    second = diskproof("run", study, cwd=folder)
    assert second.returncode == 0, second.error_text
    return folder, first.error_text + first.text, second.error_text + second.text


def test_the_budget_stops_it_and_says_how_to_go_on(raced: tuple[Path, str, str]) -> None:
    _, first, _ = raced
    assert f"/{CELLS * MAX_BLOCKS}, at most " in first
    assert "the budget is spent, at most " in first and "To go on: diskproof run" in first
    assert "race: no complete block yet" in first or "leads; nothing is judged" in first


def test_cells_that_left_were_not_run_again(raced: tuple[Path, str, str]) -> None:
    folder, _, told = raced
    with open_store(str(folder / "diskproof.sqlite")) as store:
        (study,) = store.studies()
        (race,) = replay_races(study, race_scores(store, study.id))
        runs = [(run.cell.id, run.block) for run in store.runs(study.id)]
    assert race.course.over and race.course.drops
    for drop in race.course.drops:  # one that rested has fewer runs than the blocks before
        blocks = [block for cell, block in runs if cell == race.cells[drop.cell].id]
        assert len(set(blocks)) == len(blocks) and len(blocks) >= 2 and max(blocks) <= drop.block
    assert len(runs) == sum(map(len, race.course.entries)) < CELLS * MAX_BLOCKS
    assert told.count("out: ") == len(race.course.drops)
    assert f"of {CELLS} cells still in the race" in told or "sync-write-4k: decided" in told


def test_no_flush_to_the_disk_wins(raced: tuple[Path, str, str]) -> None:
    folder, _, _ = raced
    views = json.loads(diskproof("rank", "--json", cwd=folder).text)
    validate("rank", views)
    (view,) = views
    race = view["rankings"][0]["race"]
    assert race["leaders"] and not any(map(_flushes_the_disk, race["leaders"]))
    assert race["over"] and race["cells"] == CELLS and 0 < race["probability"] <= 1
    assert any(_flushes_the_disk(drop["cell"]) for drop in race["dropped"])
    assert "race: fastest" in diskproof("rank", cwd=folder).text


def _flushes_the_disk(cell: dict[str, str]) -> bool:
    return cell["backing"] == "disk" and cell["cache"] != "unsafe"


def test_status_knows_that_it_is_over(raced: tuple[Path, str, str]) -> None:
    folder, _, _ = raced
    (study,) = json.loads(diskproof("status", "--json", cwd=folder).text)
    assert study["state"] == "done" and study["done"] == study["total"] < CELLS * MAX_BLOCKS


def test_the_page_shows_the_race_and_nothing_is_left(raced: tuple[Path, str, str]) -> None:
    folder, _, _ = raced
    assert diskproof("report", "-o", "page.html", cwd=folder).returncode == 0
    page = (folder / "page.html").read_text()
    assert "<h3>Race</h3>" in page and "Who left when, and why" in page
    assert left_behind(folder) == []
    plan = json.loads(diskproof("plan", folder / "study.toml", "--json", cwd=folder).text)
    validate("plan", plan)
    assert plan["runs"] == CELLS * MAX_BLOCKS and plan["race"]["delta"] == 0.2
