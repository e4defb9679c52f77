"""The search for the capacity from end to end, on a host that is made up: the right number, few
trials, nothing twice, a stop in time. The real one is run in e2e/test_tiles.py."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.lab.course import JobFinished, JobStarted, Noted, Outcome, run_course
from diskproof.plan.tile_costs import TileCosts
from diskproof.plan.tiles import tile_workload
from diskproof.records import Cell, Failure, HostRecord, Metric, StudyRecord
from diskproof.records.tiles import TileRun, WorkRun
from diskproof.stats.capacity import find_capacity
from diskproof.stats.tile_trials import find_baseline, find_trials, judge_run, service_levels
from diskproof.store import Store, open_store
from diskproof.study.tile_file import parse_tile
from diskproof.study.tiles import TileRules
from diskproof.tiles.engine import OnStep, PhaseProgress
from diskproof.tiles.next import Search, TileCampaign, TileEvent, TileJob, add_past_runs

TILE = parse_tile(
    """
    [guests.a]
    [guests.b]
    [workloads.fast]
    from = "a"
    command = ["x"]
    service_level = 8.0
    [workloads.slow]
    from = "b"
    command = ["y"]
    """,
    "pair.toml",
)
RULES = TileRules(TILE, Fraction(1), most=8, runs=3)
HOST = HostRecord("h1", "lab", {})
STUDY = StudyRecord("s1", "study", "run", "", 7, 1, ())
CAPACITIES = {"none": 5, "writeback": 2, "unsafe": 8, "directsync": 0}
IDS = itertools.count()


def cell_of(cache: str, rules: TileRules = RULES) -> Cell:
    levels = (("accel", "tcg"), ("backing", "here"), ("cache", cache), ("frontend", "guest"))
    return Cell(levels, tile_workload(rules))


CELLS = tuple(cell_of(cache) for cache in CAPACITIES if cache != "directsync")


class MadeUpHost:
    """Carries so many tiles as ``CAPACITIES`` say: there the slower workload takes just under two
    times its one-tile time. ``noise`` is the scatter of a run; the host drifts by ``drift`` a run.
    ``stop_at`` interrupts the run of that number."""

    def __init__(self, noise: float = 0.0, stop_at: int = -1, drift: float = 0.0) -> None:
        self.random = random.Random(3)
        self.noise, self.stop_at, self.drift = noise, stop_at, drift
        self.made: list[tuple[str, int, int]] = []
        self.clock = 0.0

    def execute(
        self, cell: Cell, tiles: int, repeat: int, on_step: OnStep = lambda progress: None
    ) -> TileRun:
        on_step(PhaseProgress("load", ((1, "b", "slow.run"),), 0, 2))
        if len(self.made) == self.stop_at:
            raise KeyboardInterrupt
        cache = cell.level("cache")
        self.made.append((cache, tiles, repeat))
        slow = 10.0 * self._slowdown(cache, tiles) * (1 + self.drift) ** len(self.made)
        seconds = [slow * math.exp(self.random.gauss(0, self.noise)) for _ in range(tiles)]
        works = [
            WorkRun(tile, work, guest, (Metric("seconds", "s", value * share, False, True),))
            for tile, value in enumerate(seconds, 1)
            for work, guest, share in (("fast", "a", 0.1), ("slow", "b", 1.0))
        ]
        failure = None
        if cache == "directsync":
            failure, works = Failure("guest", "tile 1 a died", "no memory"), []
        began, self.clock = self.clock, self.clock + max(seconds) + 5
        return TileRun(
            id=f"{next(IDS):032x}",
            study_id=STUDY.id,
            cell=cell,
            host_id=HOST.id,
            tiles=tiles,
            repeat=repeat,
            started=began,
            ended=self.clock,
            seconds=max(seconds),
            works=tuple(works),
            failure=failure,
        )

    @staticmethod
    def _slowdown(cache: str, tiles: int) -> float:
        """Linear in the tiles; 2 (the service level) half a tile above the capacity."""
        return 1 + (tiles - 1) / (CAPACITIES[cache] - 0.5) if tiles > 1 else 1.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(str(tmp_path / "s.sqlite"), create=True)
    opened.add_host(HOST)
    return opened


def make_campaign(
    store: Store, host: MadeUpHost, rules: TileRules = RULES, cells: tuple[Cell, ...] = CELLS
) -> TileCampaign:
    return TileCampaign(STUDY, cells, rules, host.execute, store, host_id=HOST.id, cpus=2)


def go(
    store: Store,
    host: MadeUpHost,
    rules: TileRules = RULES,
    cells: tuple[Cell, ...] = CELLS,
    on_event: Callable[[TileEvent], None] = lambda event: None,
    budget: float | None = None,
    retry: bool = False,
) -> Outcome:
    return run_course(
        make_campaign(store, host, rules, cells),
        describe=str,
        on_event=on_event,
        budget_seconds=budget,
        retry=retry,
        now=lambda: host.clock,
    )


def answers(store: Store, most: int = 8) -> dict[str, tuple[int, int, int]]:
    found = {}
    for cell in {run.cell.id: run.cell for run in store.tile_runs(STUDY.id)}.values():
        runs = [run for run in store.tile_runs(STUDY.id) if run.cell.id == cell.id]
        known = find_capacity(find_trials(runs), most)
        found[cell.level("cache")] = (known.tiles, known.low, known.high)
    return found


# -- the answer -----------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_search_finds_each_cells_capacity_in_few_trials(store: Store, noise: float) -> None:
    host = MadeUpHost(noise)
    outcome = go(store, host)
    assert outcome.reason == "done"
    for cache, (tiles, low, high) in answers(store).items():
        assert low <= CAPACITIES[cache] <= high, cache
        assert tiles == CAPACITIES[cache] or noise
        trials = [each for each in host.made if each[0] == cache and each[1] > 1]
        assert len(trials) <= math.ceil(math.log2(RULES.most)) + 3
        assert sum(each[:2] == (cache, 1) for each in host.made) == RULES.runs


def test_a_tile_that_never_runs_ends_the_search_and_is_a_result(store: Store) -> None:
    host = MadeUpHost()
    outcome = go(store, host, cells=(cell_of("directsync"),))
    assert outcome.reason == "done" and outcome.standing.failed == len(host.made) > 0
    assert {tiles for _, tiles, _ in host.made} == {1}
    assert answers(store) == {"directsync": (0, 0, 0)}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 16), st.integers(1, 4), st.sampled_from(sorted(CAPACITIES)))
def test_a_search_ends_within_its_bound(most: int, runs: int, cache: str) -> None:
    rules = replace(RULES, most=most, runs=runs)
    search, host = Search([cell_of(cache, rules)], rules, 1, 2), MadeUpHost(0.2)
    while job := search.find_next():
        at_most = search.standing().total
        assert 1 <= job.tiles <= most
        search.add(host.execute(*job), 1.0)
        assert search.standing().total <= at_most or len(host.made) == 1
    beside = len(host.made) - sum(tiles == 1 for _, tiles, _ in host.made)
    assert beside <= (math.ceil(math.log2(most)) + 3 if most > 1 else 0)
    assert search.standing().eta_seconds == 0
    assert len(set(host.made)) == len(host.made)


# -- the order ------------------------------------------------------------------------------


def test_cells_take_turns_in_an_order_that_the_seed_gives(store: Store) -> None:
    host = MadeUpHost()
    go(store, host)
    rounds = [{cache for cache, _, _ in host.made[n : n + 3]} for n in (0, 3, 6)]
    assert rounds == [{"none", "writeback", "unsafe"}] * 3
    orders = {tuple(cache for cache, _, _ in host.made[n : n + 3]) for n in (0, 3, 6)}
    assert len(orders) > 1
    assert first_cells(Search(CELLS, RULES, 7, 2)) == [cache for cache, _, _ in host.made[:6]]
    assert first_cells(Search(CELLS, RULES, 8, 2)) != first_cells(Search(CELLS, RULES, 7, 2))


def first_cells(search: Search) -> list[str]:
    """The cells of the first six runs."""
    host, order = MadeUpHost(), []
    for _ in range(6):
        job = search.find_next()
        assert job is not None
        order.append(job.cell.level("cache"))
        search.add(host.execute(*job), 1.0)
    return order


def test_a_drift_of_the_host_does_not_favour_a_cell(store: Store) -> None:
    host = MadeUpHost(drift=0.004)
    twins = (cell_of("none"), replace(cell_of("none"), levels=(("cache", "none"), ("x", "y"))))
    go(store, host, cells=twins)
    runs = store.tile_runs(STUDY.id)
    found = [
        find_capacity(find_trials([run for run in runs if run.cell.id == cell.id]), 8)
        for cell in twins
    ]
    assert found[0].low <= found[1].high and found[1].low <= found[0].high


def test_given_numbers_are_run_exactly(store: Store) -> None:
    host = MadeUpHost()
    rules = replace(RULES, counts=(1, 2, 4), runs=2, most=4)
    assert go(store, host, rules).standing.total == 18
    assert Counter((cache, tiles) for cache, tiles, _ in host.made) == dict.fromkeys(
        itertools.product(("none", "writeback", "unsafe"), (1, 2, 4)), 2
    )
    assert {each[:2] for each in host.made[:9]} == {each[:2] for each in host.made[9:]}


# -- to go on -------------------------------------------------------------------------------


def test_an_interrupted_search_takes_the_course_it_would_have_taken(
    store: Store, tmp_path: Path
) -> None:
    whole, first, second = MadeUpHost(), MadeUpHost(stop_at=7), MadeUpHost()
    go(store, whole)
    with open_store(str(tmp_path / "cut.sqlite"), create=True) as cut:
        cut.add_host(HOST)
        outcome = go(cut, first)
        assert (outcome.reason, outcome.executed) == ("interrupted", 7)
        assert cut.progress() is None
        second.clock = first.clock
        assert go(cut, second).reason == "done"
        assert first.made + second.made == whole.made
        again = MadeUpHost()
        assert go(cut, again).executed == 0


def test_runs_of_another_host_say_nothing_about_this_one(store: Store) -> None:
    store.add_host(HostRecord("h2", "another", {}))
    store.add_study(STUDY)
    store.add_tile_run(replace(MadeUpHost().execute(CELLS[0], 1, 1), host_id="h2"))
    host = MadeUpHost()
    go(store, host, replace(RULES, counts=(1,), runs=1))
    assert len(host.made) == 3


def test_failed_runs_are_made_again_only_when_asked(store: Store) -> None:
    cells = (cell_of("directsync"),)
    go(store, MadeUpHost(), cells=cells)
    idle, again = MadeUpHost(), MadeUpHost()
    assert go(store, idle, cells=cells).executed == 0
    assert go(store, again, cells=cells, retry=True).executed > 0
    assert [repeat for *_, repeat in again.made] == list(range(1, len(again.made) + 1))


def test_no_run_is_started_that_would_overshoot_the_budget(store: Store) -> None:
    host = MadeUpHost()
    assert go(store, host, budget=0.5).reason == "budget"
    assert host.made == []
    outcome = go(store, host, budget=100.0)
    assert outcome.reason == "budget" and 0 < outcome.executed < 8
    assert host.clock <= 100.0


def test_another_study_of_the_tile_is_foretold_by_what_runs_of_it_took(store: Store) -> None:
    """Those of as many tiles as these did, others by how far off guesses were; other tiles are not
    meant, nor other hosts."""
    go(store, MadeUpHost(), RULES, CELLS[:1])
    made = store.tile_runs(STUDY.id)
    load = CELLS[0].workload
    costs, blind = TileCosts(RULES, 2), TileCosts(RULES, 2)
    for strange in (replace(load, name="other"), replace(load, options=())):
        add_past_runs(costs, store, [HOST.id], strange)
    add_past_runs(costs, store, ["another"], load)
    add_past_runs(costs, store, [HOST.id], load, but=STUDY.id)
    assert costs.runs == 0 and costs.expect(CELLS[1], 1) == blind.expect(CELLS[1], 1)
    add_past_runs(costs, store, [HOST.id], load)
    alone = [run.ended - run.started for run in made if run.tiles == 1]
    assert costs.expect(CELLS[1], 1) == pytest.approx(sum(alone) / len(alone))
    unseen = next(n for n in range(1, 99) if n not in {run.tiles for run in made})
    paces = [(r.ended - r.started) / blind.expect(r.cell, r.tiles) for r in made]
    pace = costs.expect(CELLS[1], unseen) / blind.expect(CELLS[1], unseen)
    assert pace == pytest.approx(sum(paces) / len(paces))
    told = costs.expect_phases(100.0)
    assert told.runs == len(made) and sum(part for _, part in told.parts) == pytest.approx(100.0)
    other = replace(STUDY, id="s2")
    campaign = TileCampaign(other, CELLS[1:], RULES, MadeUpHost().execute, store,
                            host_id=HOST.id, cpus=2)  # fmt: skip
    campaign.begin(retry=False)
    assert campaign.expect(TileJob(CELLS[1], 1, 1)) == costs.expect(CELLS[1], 1)


def test_what_is_told_adds_up(store: Store) -> None:
    events: list[TileEvent] = []
    told: list[str] = []

    def watch(event: TileEvent) -> None:
        events.append(event)
        if isinstance(event, JobStarted):
            progress = store.progress()
            assert progress is not None and progress.total == event.standing.total
            told.append(progress.current)

    outcome = go(store, MadeUpHost(), on_event=watch)
    finished = [event for event in events if isinstance(event, JobFinished)]
    assert [event.standing.done for event in finished] == list(range(1, outcome.executed + 1))
    totals = [
        event.standing.total for event in events if isinstance(event, JobStarted | JobFinished)
    ]
    assert totals == sorted(totals, reverse=True) and totals[-1] == outcome.executed
    assert finished[-1].standing.eta_seconds == 0
    news = [event.news for event in events if isinstance(event, Noted)]
    last = {known.cell.level("cache"): known.capacity.tiles for known in news}
    assert len(news) == len(finished)
    assert last == {cache: CAPACITIES[cache] for cache in last}


# -- figures against their service levels ----------------------------------------------------


def test_a_workloads_own_service_level_replaces_the_studys() -> None:
    assert service_levels(CELLS[0]) == {"fast": 8.0, "slow": 2.0}
    runs = [MadeUpHost().execute(CELLS[0], tiles, 1) for tiles in (1, 3)]
    judged = judge_run(runs[1], find_baseline(runs))
    ratio = MadeUpHost._slowdown("none", 3)
    expected = {"fast": ratio / 8, "slow": ratio / 2}
    assert len(judged) == 6
    assert all(each.ratio == pytest.approx(expected[each.work]) for each in judged)
    assert [trial.worst_ratio for trial in find_trials(runs)] == [0.5, pytest.approx(ratio / 2)]


def test_latency_is_judged_where_it_is_told_and_failures_miss() -> None:
    def run(tiles: int, latency: float, failed: bool = False) -> TileRun:
        made = MadeUpHost().execute(CELLS[0], tiles, 1)
        metrics = (Metric("latency_p99", "s", latency, False), Metric("seconds", "s", 1, False))
        failure = Failure("timeout", "it hung") if failed else None
        return replace(made, works=(WorkRun(1, "slow", "b", metrics),), failure=failure)

    runs = [run(1, 0.1), run(1, 0.3), run(1, 9.0, failed=True), run(2, 0.8), run(2, 0.1, True)]
    assert find_baseline(runs)["slow", "latency_p99"] == pytest.approx(0.2)
    ratios = [trial.worst_ratio for trial in find_trials(runs)]
    assert ratios == [0.5, pytest.approx(0.75), math.inf, pytest.approx(2.0), math.inf]
    alone = find_trials(runs[3:])
    assert [trial.worst_ratio for trial in alone] == [math.inf, math.inf]
