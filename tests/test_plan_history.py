"""Times of runs that were made, and what they foretell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.plan import estimate, estimate_seconds, make_plan
from diskproof.plan.estimate import PREPARE_SECONDS, Costs, Remaining
from diskproof.plan.history import LOAD, OTHER, History
from diskproof.records import Cell
from diskproof.study.load import parse_study
from support.planning import FACTS

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


def cells(size: str = "1GiB") -> tuple[Cell, ...]:
    return make_plan(parse_study(STUDY.format(size)), FACTS).cells


def phases(remove: float) -> tuple[tuple[str, float], ...]:
    return (("start", 1.0), (LOAD, 12.5), ("remove", remove))


def known(remove: float = 9.0) -> History:
    history = History()
    for cell in cells():
        history.add(cell, 14.0 + remove, phases(remove))
    return history


def test_a_phase_that_no_plan_knew_of_is_in_the_next_one() -> None:
    """Removing a fragmented image that is trimmed took three quarters as long as the load."""
    plan = make_plan(parse_study(STUDY.format("1GiB")), FACTS)
    blind, seeing = estimate(plan, 4), estimate(plan, 4, known())
    assert blind.phases.parts == () and blind.seconds < 8 * 14
    assert seeing.seconds == pytest.approx(PREPARE_SECONDS + 8 * 23.0)
    assert dict(seeing.phases.parts) == pytest.approx(
        {LOAD: 100.0, "remove": 72.0, "start": 8.0, OTHER: 4.0}
    )
    assert seeing.phases.parts[0][0] == LOAD and seeing.phases.runs == 2


def test_phases_of_the_disk_grow_with_it_and_loads_are_as_long_as_asked() -> None:
    history = known()
    (twice, _) = cells("2GiB")
    found = history.expect(twice)
    assert found and found["remove"] == pytest.approx(18.0) and found["start"] == 1.0
    longer = parse_study(STUDY.format("1GiB").replace('"10s"', '"60s"'))
    found = history.expect(make_plan(longer, FACTS).cells[0])
    assert found and found[LOAD] == pytest.approx(62.5)


def test_the_nearest_runs_count_and_other_frontends_say_nothing() -> None:
    history, (raw, qcow2) = History(), cells()
    history.add(raw, 14.0, phases(0.5))
    history.add(qcow2, 23.5, phases(10.0))
    assert [(history.expect(cell) or {})["remove"] for cell in (raw, qcow2)] == [0.5, 10.0]
    other = parse_study(STUDY.format("1GiB").replace("sync-write-4k", "rand-write-4k-d32"))
    found = history.expect(make_plan(other, FACTS).cells[0])
    assert found and found["remove"] == pytest.approx(5.25)  # as both took
    host = parse_study(STUDY.format("1GiB").replace("[factors]", '[factors]\nfrontend = "host"'))
    (baseline,) = make_plan(host, FACTS).cells
    assert history.expect(baseline) is None


def test_an_eta_begins_with_what_is_known_and_is_corrected() -> None:
    history, planned = known(), cells("2GiB")
    costs, remaining = Costs(history), Remaining(planned, history)
    assert remaining.expect(costs) == pytest.approx(2 * 32.0)
    costs.add(planned[0], 64.0)  # twice as long as foretold
    remaining.finish(planned[0])
    assert remaining.expect(costs) == pytest.approx(64.0)
    assert Remaining(planned).expect(Costs()) == pytest.approx(2 * estimate_seconds(planned[0]))


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=30))
def test_the_runs_that_were_made_are_foretold_on_average(removes: list[float]) -> None:
    history, (raw, _) = History(), cells()
    for remove in removes:
        history.add(raw, 14.0 + remove, phases(remove))
    found = history.expect(raw)
    mean = sum(14.0 + remove for remove in removes) / len(removes)
    assert found and sum(found.values()) == pytest.approx(mean)
