"""A study that fits a budget: whatever the budget, the manager and the host."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.errors import HostError, UsageError
from diskproof.plan import make_crash_plan, make_plan
from diskproof.plan.estimate import estimate, longest_verdicts
from diskproof.plan.quick import OVERHEAD_SECONDS, Asked, QuickPlan, fit
from diskproof.process.start import run
from diskproof.records import BackingFacts, HostFacts
from diskproof.study.examples import EXAMPLES, read_example
from diskproof.study.like import MANAGERS
from diskproof.study.load import load_study, parse_study
from diskproof.study.tile_file import built_in_tile, parse_tile
from support.planning import facts_with

DAY = 86_400.0
BUDGETS = st.floats(60, DAY)
IOTHREADS = {"frontend=daemon,iothread=on": "its daemon ends"}


def facts(accel: str = "tcg", *, o_direct: bool = True, guest: bool = True) -> HostFacts:
    here = BackingFacts("/images", "ext4", o_direct, "" if o_direct else "refused", 80 << 30)
    frontends = frozenset({"host", "daemon", *(["guest"] if guest else [])})
    reasons = IOTHREADS if guest else {**IOTHREADS, "frontend=guest": "no guest is built"}
    return facts_with(accel=accel, backings={"here": here}, frontends=frontends, reasons=reasons)


HOSTS = [
    facts(),
    facts("kvm"),
    facts(o_direct=False),
    facts(guest=False),
]
ANY_HOST = st.sampled_from(HOSTS)
ANY_MANAGER = st.sampled_from(MANAGERS)


def plan(host: HostFacts, manager: str, budget: float) -> QuickPlan | None:
    """None where this manager has one kind of disk there only."""
    try:
        asked = Asked("/images", manager, "quick-images", "diskproof quick /images")
        return fit(asked, host, budget)
    except HostError as error:
        assert "nothing to choose" in error.what
        return None


@settings(max_examples=25, deadline=None)
@given(host=ANY_HOST, manager=ANY_MANAGER, budget=BUDGETS)
def test_any_budget_gives_a_study_that_fits(host: HostFacts, manager: str, budget: float) -> None:
    """Of its own file the plan that anybody would make, with its verdicts, ends in time."""
    if (quick := plan(host, manager, budget)) is None:
        return
    study = parse_study(quick.study.text, "mine.toml")
    assert study == quick.study and study.names_crash
    made = make_plan(study, host)
    judged, _ = make_crash_plan(study, host)
    verdicts = sum(longest_verdicts(cell, study.crash.faults) for cell in judged)
    took = estimate(made, study.blocks).seconds + verdicts
    assert took + OVERHEAD_SECONDS <= budget
    assert took + OVERHEAD_SECONDS == pytest.approx(quick.seconds)
    assert quick.verdict_seconds == pytest.approx(verdicts)
    frontends = {cell.level("frontend") for cell in made.cells}
    assert {"host", "daemon"} <= frontends and study.blocks >= 3
    # Everything that could be advised is judged, and nothing that drops flushes is among it.
    disks = {cell.levels for cell in made.cells if cell.level("frontend") != "host"}
    assert {cell.levels for cell in judged} == disks
    assert not any(cell.level("cache") == "unsafe" for cell in made.cells)


@settings(max_examples=25, deadline=None)
@given(host=ANY_HOST, manager=ANY_MANAGER, budgets=st.tuples(BUDGETS, BUDGETS))
def test_more_time_never_gives_fewer_cells(
    host: HostFacts, manager: str, budgets: tuple[float, float]
) -> None:
    plans = [plan(host, manager, budget) for budget in sorted(budgets)]
    if None in plans:
        return
    less, more = (
        {(cell.levels, cell.workload.name) for cell in make_plan(each.study, host).cells}
        for each in plans
        if each
    )
    assert less <= more


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_minute_an_hour_and_a_day(manager: str) -> None:
    """The default of the manager is always there; a day leaves nothing out but for the host."""
    for host in HOSTS[:2]:
        minute, hour, day = (plan(host, manager, each) for each in (60.0, 3600.0, DAY))
        assert minute and hour and day
        for each in (minute, hour, day):
            cells = make_plan(each.study, host).cells
            assert any(name.startswith(manager) for cell in cells for name in cell.names)
        assert "cells that need" in minute.gave_up[-1] and "blocks" in minute.gave_up[0]
        assert hour.study.blocks >= 8 and day.gave_up == () and day.missing == ()


def test_what_a_host_cannot_do_is_told_whatever_the_budget() -> None:
    found = plan(HOSTS[3], "proxmox", DAY)
    assert found and found.missing == ("guests: no guest is built",)
    buffered = plan(HOSTS[2], "virt-manager", 600.0)
    assert buffered
    caches = {
        cell.level("cache", "writeback") for cell in make_plan(buffered.study, HOSTS[2]).cells
    }
    assert caches <= {"writeback", "writethrough"}


def test_too_small_a_budget_names_the_smallest_that_does() -> None:
    with pytest.raises(UsageError, match="too small") as caught:
        plan(facts(), "proxmox", 5.0)
    least = float(caught.value.hint.split()[1].removesuffix("s"))
    assert 5 < least <= 60 and plan(facts(), "proxmox", least)
    with pytest.raises(UsageError):
        plan(facts(), "proxmox", least - 2)


def test_a_folder_with_little_room_gets_a_small_disk() -> None:
    little = BackingFacts("/images", "ext4", True, "", 2 << 30)
    found = plan(facts_with(backings={"here": little}, reasons=IOTHREADS), "proxmox", DAY)
    assert found and int(found.study.workloads[0].option("size")) <= 512 << 20


@pytest.mark.parametrize("folder", ['/a "b"\\c', "/tab\there", "/é\x7f磁盘", "/new\nline"])
def test_any_name_of_a_folder_can_be_written(folder: str) -> None:
    asked = Asked(folder, "proxmox", "quick", "diskproof quick")
    study = fit(asked, facts(), 600.0).study
    assert study.backings[0].option("path") == folder


# -- examples -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if kind != "tile"])
def test_an_example_is_a_study_that_plans(kind: str, tmp_path: Path) -> None:
    """Of every kind one loads, has comments, and has cells on a host that can do all of it."""
    text = read_example(kind)
    run(["qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "vm.qcow2"), "64M"], timeout=30)
    (tmp_path / f"{kind}.toml").write_text(text)
    study = load_study(tmp_path / f"{kind}.toml")
    assert study.name == kind and text.startswith("# ")
    room = {
        spec.name: BackingFacts("/x", "ext4", True, "", 1 << 40, device=spec.kind == "device",
                                network="nbd" if spec.kind == "nbd" else "")
        for spec in study.backings
    }  # fmt: skip
    host = facts_with(backings=room, accel="kvm")
    if kind == "tiles":
        from diskproof.plan import make_tile_plan

        assert make_tile_plan(study, host, 64 << 30).cells
        return
    made = make_plan(study, host)
    assert len(made.cells) > 1
    assert not [text for text in made.warnings if "matches no combination" in text]
    if study.names_crash:
        assert make_crash_plan(study, host)[0]


def test_the_example_of_a_tile_is_the_built_in_one() -> None:
    assert parse_tile(read_example("tile"), "mine.toml") == built_in_tile()
