"""Runs of tiles in a store: as they went in, once, in one transaction."""

# ruff: noqa: F811 (fixtures by their names)
import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diskproof.errors import UsageError
from diskproof.records import Artefact, Check, Failure, HostRecord, Metric, Series, StudyRecord
from diskproof.records.tiles import GuestUse, StepRun, TileRun, WorkRun
from diskproof.store import DuplicateRun, Store
from diskproof.store.write import make_storable
from support.tile_stores import HOST, STUDY_ID, TEXT, Made, make_tile_run, tile_cell
from test_store import database, store, url  # noqa: F401  (fixtures of both databases)

STUDY = StudyRecord(STUDY_ID, "consolidation", "run", TEXT, 1, 1, ())
CELL = tile_cell()
_NUMBERS = itertools.count(1)


@pytest.fixture
def tiles(store: Store) -> Iterator[Store]:
    store.add_study(STUDY)
    store.add_host(HOST)
    yield store


def light(run: TileRun) -> TileRun:
    return replace(run, series=(), artefacts=())


@pytest.mark.parametrize("fail", ["", "web"], ids=["good", "failed"])
def test_a_run_of_tiles_comes_out_as_it_went_in(tiles: Store, fail: str) -> None:
    run = make_tile_run(Made(CELL, 2, 1, fail=fail))
    tiles.add_tile_run(run)
    assert tiles.tile_run(run.id) == run
    assert tiles.tile_series_of(run.id) == run.series and len(run.series) > 5
    assert tiles.tile_runs() == tiles.tile_runs(STUDY_ID) == (light(run),)
    assert tiles.tile_runs("s1") == ()


def test_runs_of_several_cells_keep_their_parts_apart(tiles: Store) -> None:
    runs = [
        make_tile_run(Made(cell, count, repeat))
        for cell in (CELL, tile_cell("writeback"))
        for count in (1, 3)
        for repeat in (1, 2)
    ]
    for run in runs:
        tiles.add_tile_run(run)
    assert tiles.tile_runs(STUDY_ID) == tuple(map(light, runs))


# -- anything that may be stored ------------------------------------------------------------

NAMES = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BYTES = st.integers(0, (1 << 63) - 1)
METRICS = st.lists(
    st.builds(Metric, NAMES, NAMES, FLOATS, st.booleans(), st.booleans()),
    max_size=3,
    unique_by=lambda metric: metric.name,
).map(tuple)
PHASES = st.sampled_from(["setup", "load", "check"])
STATUS = st.none() | st.integers(-255, 255)
TILE = st.integers(1, 2)
WORK_NAMES = NAMES | st.just("")
STEPS = st.builds(StepRun, TILE, NAMES, NAMES, PHASES, WORK_NAMES, FLOATS, FLOATS, STATUS)
WORKS = st.builds(WorkRun, TILE, NAMES, NAMES, METRICS)
USES = st.builds(GuestUse, TILE, NAMES, FLOATS, BYTES, BYTES, BYTES, BYTES)
SERIES = st.lists(st.tuples(FLOATS, FLOATS), max_size=4).map(
    lambda points: Series(
        "host", "cpu", "%", tuple(a for a, _ in points), tuple(b for _, b in points)
    )
)
CHECKS = st.builds(Check, st.text(max_size=9), st.text(max_size=9), NAMES, NAMES, st.booleans())
FAILURES = st.none() | st.builds(Failure, NAMES, NAMES, NAMES, NAMES)
FILES = st.builds(Artefact, NAMES, NAMES, st.binary(max_size=50))


def some(parts: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(parts, max_size=4).map(tuple)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.fixed_dictionaries(
        {
            "steps": some(STEPS),
            "works": some(WORKS),
            "uses": some(USES),
            "series": some(SERIES),
            "checks": some(CHECKS),
            "failure": FAILURES,
            "artefacts": some(FILES),
            "phases": some(st.tuples(NAMES, FLOATS)),
        }
    )
)
def test_any_run_comes_out_as_it_went_in(tiles: Store, parts: dict[str, object]) -> None:
    number = next(_NUMBERS)
    place = (number, float(number), 2.0, 3.0)
    run = TileRun(f"any-{number}", STUDY_ID, CELL, HOST.id, 2, *place, **parts)  # type: ignore[arg-type]
    tiles.add_tile_run(run)
    assert tiles.tile_run(run.id) == run
    assert tiles.tile_runs(STUDY_ID)[-1] == light(run)


# -- once -----------------------------------------------------------------------------------


def test_a_run_counts_once_for_its_cell_host_tiles_and_repeat(tiles: Store) -> None:
    run = make_tile_run(Made(CELL, 2, 1))
    tiles.add_tile_run(run)
    tiles.add_tile_run(run)
    with pytest.raises(DuplicateRun, match="tiles 2, repeat 1"):
        tiles.add_tile_run(replace(run, id="other"))
    with pytest.raises(DuplicateRun):
        tiles.add_tile_run(replace(run, repeat=2))  # the id of another place
    with pytest.raises(UsageError, match="no run of tiles 'other'"):
        tiles.tile_run("other")
    tiles.add_host(HostRecord("h2", "other", {}))
    for number, changes in enumerate(({"tiles": 3}, {"repeat": 2}, {"host_id": "h2"})):
        tiles.add_tile_run(replace(run, id=f"r{number}", **changes))  # type: ignore[arg-type]
    assert len(tiles.tile_runs()) == 4


def test_a_failed_run_is_kept_and_makes_room_for_another(tiles: Store) -> None:
    failed, good = make_tile_run(Made(CELL, 3, 1, fail="db")), make_tile_run(Made(CELL, 1, 1))
    tiles.add_tile_run(failed)
    tiles.add_tile_run(good)
    assert tiles.remove_failed_tiles("s1") == 0
    assert tiles.remove_failed_tiles(STUDY_ID) == 1
    assert tiles.tile_runs() == (light(good),)
    again = replace(make_tile_run(Made(CELL, 3, 1)), id="again")
    tiles.add_tile_run(again)
    assert tiles.tile_runs() == (light(good), light(again))
    assert tiles.tile_run(failed.id) == failed


def test_tile_cells_are_no_cells_of_the_study(tiles: Store) -> None:
    tiles.add_tile_run(make_tile_run(Made(CELL, 1, 1)))
    study = tiles.find_study(STUDY_ID)
    assert study is not None and study.cells == ()
    assert tiles.results(STUDY_ID) == [] and tiles.counts(STUDY_ID).planned == 0


# -- what is refused ------------------------------------------------------------------------

RUN = make_tile_run(Made(CELL, 2, 1, series=False))
STEP, WORK, USE = RUN.steps[0], RUN.works[0], RUN.uses[0]
NAN = float("nan")


@pytest.mark.parametrize("changes", [{"study_id": "x"}, {"host_id": "x"}])
def test_an_unknown_study_or_host_is_refused(tiles: Store, changes: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="is not known"):
        tiles.add_tile_run(replace(RUN, **changes))  # type: ignore[arg-type]
    assert tiles.tile_runs() == ()


@pytest.mark.parametrize(
    "run",
    [
        replace(RUN, id="a\nb"),
        replace(RUN, tiles=0),
        replace(RUN, tiles=10**6),
        replace(RUN, repeat=-1),
        replace(RUN, seconds=NAN),
        replace(RUN, seconds=-1.0),
        replace(RUN, phases=(("load", float("inf")),)),
        replace(RUN, steps=(replace(STEP, tile=3),)),
        replace(RUN, steps=(replace(STEP, guest="x" * 201),)),
        replace(RUN, steps=(replace(STEP, phase="boot"),)),  # type: ignore[arg-type]
        replace(RUN, steps=(replace(STEP, status=1 << 40),)),
        replace(RUN, steps=(replace(STEP, ended=NAN),)),
        replace(RUN, steps=(STEP,) * 100_001),
        replace(RUN, works=(replace(WORK, work="\x1b[31m"),)),
        replace(RUN, works=(replace(WORK, metrics=(Metric("a", "s", NAN, True),)),)),
        replace(RUN, works=(replace(WORK, metrics=(Metric("a", "s", 1.0, True),) * 2),)),
        replace(RUN, uses=(replace(USE, read_bytes=-1),)),
        replace(RUN, uses=(replace(USE, cpu_seconds=NAN),)),
        replace(RUN, series=(Series("host", "cpu", "%", (1.0,), ()),)),
        replace(RUN, checks=(Check("a", "b" * (1 << 17), "c", "d", True),)),
    ],
)
def test_what_no_reader_could_trust_is_refused(run: TileRun) -> None:
    make_storable(RUN)
    with pytest.raises(UsageError, match="cannot be stored"):
        make_storable(run)


def test_a_store_asks_before_it_writes(tiles: Store) -> None:
    with pytest.raises(UsageError, match="seconds"):
        tiles.add_tile_run(replace(RUN, seconds=-1.0))
    assert tiles.tile_runs() == ()
