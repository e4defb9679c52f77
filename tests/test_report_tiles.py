"""What is told of runs of tiles: capacity with ties, figures of known runs, tables, JSON, page."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from diskproof.errors import UsageError
from diskproof.records import Cell, Failure, Metric, Series, StudyRecord
from diskproof.records.tiles import TileRun, WorkRun
from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.report.tiles.find import TileView, analyse_tiles
from diskproof.report.tiles.host_figures import host_figures
from diskproof.report.tiles.table import render_tiles, tiles_json
from diskproof.report.tiles.words import capacity_sentence, capacity_text
from diskproof.store import Store, open_store
from support.json_schemas import validate
from support.report_views import HOSTILE
from support.tile_stores import HOST, STUDY_ID, Made, fill_tiles, make_tile_run, tile_cell

STUDY = StudyRecord(STUDY_ID, "consolidation", "run", "", 1, 1, ())
WORKS = ("copy", "database", "web", "mail")
NONE, WRITEBACK = tile_cell("none"), tile_cell("writeback")


def slowed(cell: Cell, tiles: int, repeat: int, factor: float) -> TileRun:
    """A run in which every workload of every tile takes ``factor`` times 10 seconds."""
    made = make_tile_run(Made(cell, tiles, repeat, series=False))
    metrics = (
        Metric("seconds", "s", 10.0 * factor, False, True),
        Metric("throughput", "1/s", 5.0 / factor, True),
    )
    works = tuple(
        WorkRun(tile, work, "web", metrics) for tile in range(1, tiles + 1) for work in WORKS
    )
    return replace(made, works=works, seconds=10.0 * factor)


def analyse(runs: Sequence[TileRun]) -> TileView:
    return analyse_tiles(STUDY, HOST, runs, {})


def study_of(cells: Sequence[tuple[Cell, Sequence[float]]]) -> TileView:
    """Three runs of each cell and number of tiles, slower by the factors given for 1, 2, ..."""
    return analyse(
        [
            slowed(cell, tiles, repeat, factor * (1 + 0.01 * repeat))
            for cell, factors in cells
            for tiles, factor in enumerate(factors, 1)
            for repeat in (1, 2, 3)
        ]
    )


def tile_views(store: Store) -> list[TileView]:
    return [view.parts["tiles"].view for view in read_views(store, details=True)]


def text_of(view: TileView, width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(render_tiles(view))
    return capture.get()


# -- capacity -------------------------------------------------------------------------------


def test_what_a_host_carries_is_told_with_its_interval_and_its_machines() -> None:
    view = study_of([(NONE, (1.0, 1.2, 4.0))])
    (cell,) = view.cells
    assert (cell.capacity.tiles, cell.capacity.low, cell.capacity.high) == (2, 2, 2)
    assert capacity_text(cell.capacity, len(view.guests)) == "2 tiles [2, 2], 8 VMs"
    assert capacity_sentence(view).startswith("tile lab carries 2 tiles [2, 2], 8 VMs: 2 ")


def test_more_than_was_run_is_left_open() -> None:
    (cell,) = study_of([(NONE, (1.0, 1.1, 1.2))]).cells
    assert capacity_text(cell.capacity, 4) == "3 tiles or more [3, 3+], 12 VMs"


def test_ties_are_ties_and_what_is_proved_is_told() -> None:
    same = study_of([(NONE, (1.0, 1.2, 4.0)), (WRITEBACK, (1.0, 1.2, 4.0))])
    assert "No cell is proved to carry more" in capacity_sentence(same)
    assert [each["capacity"]["against_best"] for each in tiles_json([same])] == ["tie", "tie"]  # type: ignore[index]
    apart = study_of([(NONE, (1.0, 4.0, 9.0)), (WRITEBACK, (1.0, 1.2, 4.0))])
    assert capacity_sentence(apart).startswith("writeback carries most: 2 tiles")
    assert [each["capacity"]["against_best"] for each in tiles_json([apart])] == ["fewer", "best"]  # type: ignore[index]


def test_equal_wall_times_share_a_place_and_different_ones_do_not() -> None:
    view = study_of([(NONE, (1.0, 3.0)), (WRITEBACK, (1.0, 1.2))])
    places = {(cell.label, at.tiles): at.place for cell in view.cells for at in cell.at}
    assert places == {
        ("none", 1): "1=",
        ("writeback", 1): "1=",
        ("none", 2): "2",
        ("writeback", 2): "1",
    }


# -- figures --------------------------------------------------------------------------------


def test_figures_of_known_runs() -> None:
    (cell,) = study_of([(NONE, (1.0, 2.0))]).cells
    one, two = cell.at
    assert one.seconds is not None and one.seconds.mean == pytest.approx(10.2)
    figure = two.works["copy", "seconds"]
    assert figure.interval.n == 3 and figure.interval.mean == pytest.approx(20.4)
    # The slowest run took 2 x 1.03, the limit is twice the median of one tile, 1.02.
    assert figure.worst == pytest.approx(2 * 1.03 / (2 * 1.02))
    assert two.missed == 1 and one.missed == 0
    assert (
        one.score is not None and one.score.holds and one.score.sum.mean == pytest.approx(1, 1e-3)
    )
    assert two.score is not None and not two.score.holds
    assert two.score.sum.mean == pytest.approx(1, 1e-3)  # two tiles at half the speed
    assert two.score.minimum.mean == pytest.approx(0.5, 1e-3)
    assert two.typical is not None and two.typical.repeat == 2


def test_shares_of_guests_add_up_to_all() -> None:
    run = make_tile_run(Made(NONE, 2, 1, series=False))
    ((at,),) = [cell.at for cell in analyse([run]).cells]
    assert [share.guest for share in at.guests] == ["files-a", "files-b", "web", "db"]
    assert sum(share.share for share in at.guests) == pytest.approx(1)
    cpu = sum(use.cpu_seconds for use in run.uses)
    assert sum(share.cpus for share in at.guests) * 2 * run.seconds == pytest.approx(cpu)


def test_a_host_is_measured_from_the_begin_of_the_load_to_its_end() -> None:
    def series(name: str, *values: float) -> Series:
        times = tuple(float(n) for n in range(-1, len(values) - 1))
        return Series("host", name, "", times, values)

    found = host_figures(
        [
            series("cpu.user", 900.0, 900.0, 10.0, 30.0, 900.0),
            series("cpu.system", 900.0, 900.0, 1.0, 3.0, 900.0),
            series("disk.read", 0.0, 0.0, 10.0, 10.0, 0.0),
            series("disk.write", 0.0, 0.0, 20.0, 40.0, 0.0),
            series("disk.util", 0.0, 0.0, 50.0, 30.0, 0.0),
            replace(series("cpu.iowait", 1.0, 1.0, 1.0, 1.0, 1.0), source="fio"),
        ],
        2.0,
    )
    assert found == {
        "cpu_user": 20.0,
        "cpu_system": 2.0,
        "true_load": 22.0,
        "disk_read": 10.0,
        "disk_write": 30.0,
        "disk_util": 40.0,
        "efficiency": 1.0,
    }


@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=8), st.floats(0, 1e6, allow_nan=False)
)
def test_host_figures_are_finite_whatever_was_sampled(
    points: list[tuple[float, float]], seconds: float
) -> None:
    times, values = zip(*points, strict=True) if points else ((), ())
    found = host_figures([Series("host", "cpu.user", "%", times, values)], seconds)
    assert all(map(math.isfinite, found.values()))


# -- what may be missing --------------------------------------------------------------------


def test_failed_runs_are_shown_with_guest_phase_and_last_line() -> None:
    good = [slowed(NONE, 1, repeat, 1.0) for repeat in (1, 2)]
    failed = make_tile_run(Made(NONE, 2, 1, fail="web"))
    view = analyse(
        [*good, replace(failed, failure=Failure("guest", "web in load", "a\nlast one\n"))]
    )
    text = " ".join(text_of(view).split())
    assert "guest: web in load: last one" in text and "0 of 1" in text and "1 failed" in text
    assert view.cells[0].capacity.tiles == 1
    (found,) = tiles_json([view])
    validate("tiles", [found])
    assert found["numbers"][1]["failed"][0]["why"] == "a\nlast one\n"  # type: ignore[index]


@pytest.mark.parametrize("tiles", [(2,), (1,), (1, 3)])
def test_single_runs_and_missing_numbers(tiles: tuple[int, ...]) -> None:
    view = analyse([slowed(NONE, number, 1, 1.0) for number in tiles])
    assert view.counts == tiles
    assert ("±?" in text_of(view)) and json.dumps(tiles_json([view]), allow_nan=False)
    validate("tiles", tiles_json([view]))
    if 1 not in tiles:
        assert view.cells[0].at[0].score is None


def test_a_cell_that_is_none_of_tiles_is_told() -> None:
    odd = replace(NONE, workload=replace(NONE.workload, options=(("tile", "[1]"),)))
    with pytest.raises(UsageError, match="damaged"):
        analyse([replace(slowed(NONE, 1, 1, 1.0), cell=odd)])


# -- tables, JSON and page from a store -----------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiles") / "t.sqlite"
    fill_tiles(path, (tile_cell("none", ksm="off"), tile_cell("writeback", ksm="on")), fail="web")
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal_and_cut_nothing(place: Path, width: int) -> None:
    with open_store(str(place)) as store:
        (view,) = tile_views(store)
    lines = text_of(view, width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "\u2026" not in text
    for name in ("wall time s", "database p99", "fairness", "KSM saves", "files-b", "2 of 3"):
        assert name in text, name
    assert re.search(r"copy s +none .*!\d\.\d\dx", text), "missed service levels are marked"


def test_more_numbers_than_a_table_holds_are_all_there() -> None:
    text = text_of(study_of([(NONE, (1.0, 1.1, 1.2, 1.3, 1.4))]))
    assert all(f"{number} tile" in text for number in range(1, 6))
    assert text.count("times and score") == 2


def test_json_has_every_figure(place: Path) -> None:
    with open_store(str(place)) as store:
        found = tiles_json(tile_views(store))
    validate("tiles", found)
    assert [each["cell"]["cache"] for each in found] == ["none", "writeback"]  # type: ignore[index]
    number = found[1]["numbers"][2]  # type: ignore[index]
    assert (number["tiles"], len(number["runs"]), len(number["workloads"])) == (3, 3, 11)
    assert number["host"]["ksm_saved"]["mean"] == pytest.approx(900, rel=0.1)
    assert number["host"]["efficiency"]["unit"] == "MiB/s/percent"
    json.dumps(found, allow_nan=False)


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take seconds; e2e looks at all of them."""
    monkeypatch.setattr("diskproof.report.chapter.MAX_PICTURES", 2)


@pytest.mark.usefixtures("few_pictures")
def test_the_page_tells_of_tiles(place: Path) -> None:
    with open_store(str(place)) as store:
        (view,) = read_views(store, details=True)
        page = render_page([view])
    for text in (
        "how many virtual machines does tile lab carry?",
        "17 good, 1 failed, 2 cells",
        "What each machine was doing when",
        "Failed runs of tiles: 1",
        "Out of memory: mariadbd",
        "efficiency of the disk",
        "p99 latency (s), mean over tiles",
    ):
        assert text in page, text
    assert "No run gave a result yet" not in page and "No run failed" not in page
    raw = json.loads(page.split('id="raw">', 1)[1].split("</script>", 1)[0])
    assert raw == tiles_json([view.parts["tiles"].view])


@pytest.mark.usefixtures("few_pictures")
def test_hostile_names_stay_text(tmp_path: Path) -> None:
    runs = [replace(slowed(tile_cell(HOSTILE), n, 1, 1.0), id=f"{HOSTILE}{n}") for n in (1, 2)]
    odd = [replace(step, guest=HOSTILE, step=HOSTILE, status=7) for step in runs[1].steps]
    bad = Failure("guest", HOSTILE, f"{HOSTILE}\n\x1b[31mred", HOSTILE)
    failed = replace(runs[1], id="bad", repeat=2, steps=tuple(odd), works=(), failure=bad)
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        store.add_study(replace(STUDY, name=HOSTILE))
        store.add_host(replace(HOST, name=HOSTILE))
        for run in (*runs, failed):
            store.add_tile_run(run)
        page = render_page(read_views(store, details=True))
        (view,) = tile_views(store)
    assert "<script>alert" not in page and "<img" not in page and "\x1b" not in page
    assert "\x1b" not in text_of(view) and "[bold]x[/bold]" in "".join(text_of(view).split())
