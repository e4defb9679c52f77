"""Times of runs that were made, and what they foretell."""

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.plan import Plan, estimate, estimate_seconds, make_plan
from diskproof.plan.estimate import (
    PREPARE_SECONDS,
    REPORT_SHARE,
    foretell_verdicts,
    longest_verdicts,
)
from diskproof.plan.history import BETWEEN, LOAD, WORK, History, Phases
from diskproof.plan.outlook import Outlook
from diskproof.records import Cell, WorkloadSpec
from diskproof.records.verdicts import FAULTS
from diskproof.study.load import parse_study
from support.planning import FACTS

RUNS = Path(__file__).with_name("golden") / "run-times.json.gz"
STUDY = """
workloads = ["sync-write-4k"]
[factors]
format = ["raw", "qcow2"]
[protocol]
blocks = 4
runtime = "10s"
ramp = "2s"
size = "{}"
"""
AROUND = {"prepare": PREPARE_SECONDS, "report": REPORT_SHARE * PREPARE_SECONDS}


def cells(size: str = "1GiB") -> tuple[Cell, ...]:
    return make_plan(parse_study(STUDY.format(size)), FACTS).cells


def phases(remove: float) -> tuple[tuple[str, float], ...]:
    return (("start", 1.0), (LOAD, 12.5), ("remove", remove))


def known(remove: float = 9.0) -> History:
    history = History()
    for cell in cells():
        history.add("study", cell, 14.0 + remove, phases(remove))
    return history


def foretold(history: History, cell: Cell) -> dict[str, float]:
    """By phase, as far as something is known."""
    return {n: part for family in history.expect(cell).values() for n, part in family.items()}


def test_a_phase_that_no_plan_knew_of_is_in_the_next_one() -> None:
    """Removing a fragmented image that is trimmed took three quarters as long as the load."""
    plan = make_plan(parse_study(STUDY.format("1GiB")), FACTS)
    blind, seeing = estimate(plan, 4), estimate(plan, 4, known())
    assert "remove" not in dict(blind.phases.parts)
    assert seeing.seconds == pytest.approx(sum(AROUND.values()) + 8 * 23.0)
    expected = {LOAD: 100.0, "remove": 72.0, "start": 8.0, BETWEEN: 4.0} | AROUND
    assert dict(seeing.phases.parts) == pytest.approx(expected)
    assert seeing.phases.parts[0][0] == LOAD and seeing.phases.runs == 2


@pytest.mark.parametrize("history", [History(), known()])
def test_the_phases_of_a_plan_are_all_of_its_time(history: History) -> None:
    made = estimate(make_plan(parse_study(STUDY.format("1GiB")), FACTS), 4, history, prepare=30.0)
    assert sum(part for _, part in made.phases.parts) == pytest.approx(made.seconds)
    assert dict(made.phases.parts)["prepare"] == 30.0


def test_phases_of_the_disk_grow_with_it_and_loads_are_as_long_as_asked() -> None:
    history = known()
    (twice, _) = cells("2GiB")
    found = foretold(history, twice)
    assert found["remove"] == pytest.approx(18.0, rel=0.01) and found["start"] == 1.0
    longer = parse_study(STUDY.format("1GiB").replace('"10s"', '"60s"'))
    assert foretold(history, make_plan(longer, FACTS).cells[0])[LOAD] == pytest.approx(62.5)


def test_what_does_not_grow_is_told_apart_where_several_sizes_were_seen() -> None:
    history = History()
    for size, seconds in (("1GiB", 3.0), ("3GiB", 5.0)):
        history.add("study", cells(size)[0], 14.0 + seconds, phases(seconds))
    assert foretold(history, cells("10GiB")[0])["remove"] == pytest.approx(12.0)


def test_the_nearest_runs_count_and_other_frontends_tell_of_their_disks_only() -> None:
    history, (raw, qcow2) = History(), cells()
    history.add("study", raw, 14.0, (*phases(0.5), ("create", 1.0)))
    history.add("study", qcow2, 23.5, (*phases(10.0), ("create", 3.0)))
    assert [foretold(history, cell)["remove"] for cell in (raw, qcow2)] == [0.5, 10.0]
    other = parse_study(STUDY.format("1GiB").replace("[factors]", '[factors]\ncache = "unsafe"'))
    unsafe = make_plan(other, FACTS).cells
    assert [foretold(history, cell)["remove"] for cell in unsafe] == [0.5, 10.0]  # as its format
    guest = STUDY.format("1GiB").replace("[factors]", '[factors]\nfrontend = "guest"')
    found = foretold(history, make_plan(parse_study(guest), FACTS).cells[1])
    assert found == {"create": 3.0}


def test_what_is_made_once_is_planned_once_and_comes_not_again() -> None:
    text = STUDY.format("1GiB").replace("sync-write-4k", "seq-read")
    plan = make_plan(parse_study(text), FACTS)
    history = History()
    for study in ("a", "b"):
        history.add(study, plan.cells[0], 17.0, (("make_data", 4.0), (LOAD, 12.5), ("fill", 0.5)))
        history.add(study, plan.cells[1], 13.0, (("make_data", 0.0), (LOAD, 12.5), ("fill", 0.5)))
    for blocks in (1, 50):
        made = dict(estimate(plan, blocks, history).phases.parts)
        assert (made["make_data"], made["fill"]) == pytest.approx((4.0, blocks * 1.0))
    outlook = Outlook(history)
    outlook.set_left([*plan.cells, *plan.cells])
    assert outlook.expect(plan.cells[0]) == pytest.approx(17.0)
    assert outlook.expect_left() == pytest.approx(4 * 13.0 + 4.0)
    outlook.learn(plan.cells[0], 17.0, (("make_data", 4.0),))
    outlook.finish(plan.cells[0])
    assert outlook.expect(plan.cells[1]) == pytest.approx(13.0)
    assert outlook.expect_left() == pytest.approx(3 * 13.0)


def test_an_eta_begins_with_what_is_known_and_is_corrected() -> None:
    history, planned = known(), cells("2GiB")
    outlook = Outlook(history)
    outlook.set_left(planned)
    assert outlook.expect_left() == pytest.approx(2 * 32.0, rel=0.01)
    first = outlook.expect(planned[0])
    outlook.learn(planned[0], 2 * first, ())  # twice as long as foretold
    outlook.finish(planned[0])
    assert outlook.expect_left() == pytest.approx(2 * first)
    outlook.learn(planned[1], 1.0, ())
    outlook.finish(planned[1])
    assert outlook.expect_left() == 0.0
    blind = Outlook()
    blind.set_left(planned)
    assert blind.expect_left() == pytest.approx(2 * estimate_seconds(planned[0]))


def crash_cell(seconds: float, image: str = "qcow2") -> Cell:
    options = (("explore_seconds", f"{seconds:g}"), ("seconds", "1"), ("size", str(1 << 20)))
    levels = (("format", image), ("frontend", "daemon"))
    return Cell(levels, WorkloadSpec("ledger", "crash", options))


def test_a_search_that_was_over_early_will_be_and_one_that_was_not_takes_its_time() -> None:
    history = History()
    both = (("explore_power", 20.0), ("explore_qemu-kill", 3.0))
    history.add("study", crash_cell(20), 25.0, (("record", 2.0), *both))
    known = history.expect(crash_cell(60))[WORK]
    assert known["explore_power"] == 60.0 and known["explore_qemu-kill"] == 3.0
    asked = foretell_verdicts(crash_cell(60), ("power",), history)
    assert asked == {"record": 2.0, "explore_power": 60.0, BETWEEN: 0.0}
    asked = foretell_verdicts(crash_cell(60), FAULTS, history)
    assert set(asked) == {"record", BETWEEN, *(f"explore_{fault}" for fault in FAULTS)}
    assert asked["explore_lying-device"] == 60.0 > asked["explore_guest-kill"]
    unknown = sum(foretell_verdicts(crash_cell(60), FAULTS, History()).values())
    assert 120.0 < unknown <= longest_verdicts(crash_cell(60), FAULTS)
    raw = foretell_verdicts(crash_cell(60, "raw"), FAULTS, History())
    assert 0.0 < sum(raw.values()) < 5.0  # no other program has to open its states
    assert foretell_verdicts(crash_cell(60, "raw"), FAULTS, history) == raw  # not by qcow2's


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0.0, 1e4)), min_size=1, max_size=30))
def test_the_runs_that_were_made_are_foretold_on_average(made: list[tuple[int, float]]) -> None:
    """Whatever their sizes, and whatever removing took."""
    history = History()
    disks = [cells(f"{size}GiB")[0] for size, _ in made]
    for cell, (_, remove) in zip(disks, made, strict=True):
        history.add("study", cell, 14.0 + remove, phases(remove))
    told = sum(sum(foretold(history, cell).values()) for cell in disks)
    assert told == pytest.approx(sum(14.0 + remove for _, remove in made))


# -- runs that a host has made ----------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A study with its runs, in order: their cells, seconds and phases."""

    name: str
    runs: list[tuple[Cell, float, Phases]]

    def enter(self, history: History) -> None:
        for run in self.runs:
            history.add(self.name, *run)

    @property
    def plan(self) -> tuple[Plan, int]:
        """A plan that comes to the same runs, each cell as often."""
        counts = Counter(cell for cell, *_ in self.runs)
        assert len(set(counts.values())) == 1, "a whole study has each cell in each block"
        return Plan(tuple(counts), (), (), 0), next(iter(counts.values()))

    @property
    def took(self) -> float:
        return sum(seconds for _, seconds, _ in self.runs)


@cache
def read_made() -> list[Made]:
    """Studies of benchmarks/plan_times.py as a busy host has made them."""
    found = []
    for name, planned, runs in json.loads(gzip.decompress(RUNS.read_bytes())):
        known = [
            Cell(tuple(map(tuple, levels)), WorkloadSpec(load, kind, tuple(map(tuple, options))))
            for levels, load, kind, options in planned
        ]
        made = [(known[place], took, tuple(map(tuple, parts))) for place, took, parts in runs]
        found.append(Made(name, made))
    return found


def planned_runs(made: Made, history: History) -> float:
    """What a plan says of the runs, without what is around them."""
    plan, blocks = made.plan
    return estimate(plan, blocks, history).seconds - sum(AROUND.values())


@pytest.mark.parametrize("made", read_made(), ids=lambda made: made.name)
def test_a_study_planned_by_its_own_runs_takes_what_they_took(made: Made) -> None:
    history = History()
    made.enter(history)
    assert planned_runs(made, history) == pytest.approx(made.took)


def test_all_studies_planned_by_all_their_runs_take_what_these_took() -> None:
    history = History()
    for made in read_made():
        made.enter(history)
    told = sum(planned_runs(made, history) for made in read_made())
    assert told == pytest.approx(sum(made.took for made in read_made()))


def replay(made: Made, history: History) -> tuple[float, float]:
    """By how much the plan was off, and what the ETA came to after a third of the runs; shares of
    what the runs took."""
    outlook = Outlook(history)
    outlook.set_left([cell for cell, *_ in made.runs])
    planned, spent = outlook.expect_left(), 0.0
    for cell, seconds, parts in made.runs[: -(-len(made.runs) // 3)]:
        outlook.learn(cell, seconds, parts)
        outlook.finish(cell)
        spent += seconds
    told = spent + outlook.expect_left()
    return abs(planned / made.took - 1), abs(told / made.took - 1)


def test_after_a_third_of_the_runs_the_eta_is_nearer_to_the_truth_than_the_plan() -> None:
    """Each study planned by those before it, the first by nothing; also where the plan was right,
    nothing is made worse than by a few percent."""
    history, errors = History(), []
    for made in read_made():
        errors.append(replay(made, history))
        made.enter(history)
    plans, etas = (sorted(column) for column in zip(*errors, strict=True))
    assert sum(etas) < 0.5 * sum(plans)
    assert etas[len(etas) // 2] < plans[len(plans) // 2]
    assert all(eta < plan + 0.06 for plan, eta in errors)
