"""Which cell is advised: the best that keeps, of a tie the simplest, never a winner from noise."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from scipy.stats import binom

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import DIALECTS
from diskproof.records import Cell, HostRecord
from diskproof.records.verdicts import Durability, Fault
from diskproof.report.advice.answer import (
    find_answers,
)
from diskproof.report.advice.choose import (
    Recommendation,
    Wish,
    levels_id,
    recommend_all,
    settle,
)
from diskproof.report.advice.conditions import find_conditions
from diskproof.report.advice.keeping import KEEPS
from diskproof.report.advice.words import answer_sentences
from diskproof.report.view import StudyView
from support.advice_views import CACHES, DAEMON, EQUAL, RACE, advice_view, nobody

SPREAD = {("cache", "none"): 1.0, ("cache", "writeback"): 1.5, ("cache", "unsafe"): 3.0}
SPREAD |= {("cache", "writethrough"): 0.4}


def one(view: StudyView, wish: Wish | None = None) -> Recommendation:
    (found,) = recommend_all(view, wish)
    return found


def cache_of(found: Recommendation) -> str:
    return found.chosen.cell.level("cache") if found.chosen else ""


def said(found: Recommendation) -> str:
    return " ".join(answer_sentences(found))


# -- what keeps -----------------------------------------------------------------------------


def test_the_fastest_that_keeps_is_advised_and_the_faster_one_is_told_with_its_loss() -> None:
    found = one(advice_view(CACHES, speeds=SPREAD))
    assert cache_of(found) == "writeback" and found.proved and found.keeps
    faster = found.next_faster
    assert faster is not None and faster.cell.level("cache") == "unsafe" and faster.is_apart
    assert faster.times.low is not None and faster.times.low < 2 < (faster.times.high or 0)
    assert "loses 64 acknowledged writes in a power cut" in said(found)
    assert "It kept every acknowledged write in a power cut: 120 of 120" in said(found)


def test_the_interval_beside_the_chosen_cell_is_the_ranking_s_turned_round() -> None:
    found = one(advice_view(CACHES, speeds=SPREAD))
    assert found.chosen is not None and found.next_faster is not None
    ranked = found.chosen.line.ranked.ratio  # of the chosen one over the best, which is unsafe
    times = found.next_faster.times
    assert ranked.low and ranked.high
    assert times.ratio == pytest.approx(1 / ranked.ratio)
    assert (times.low, times.high) == pytest.approx((1 / ranked.high, 1 / ranked.low))


def test_what_was_kept_so_far_is_not_proved_to_be_kept() -> None:
    found = one(advice_view(CACHES, speeds=SPREAD, states=(2, 1135)))
    assert not found.keeps
    assert "too few to say so: 2 of about 1,135 states were checked" in said(found)
    assert "a longer explore_seconds" in said(found)
    assert one(advice_view(CACHES, speeds=SPREAD, states=(1135, 1135))).keeps


def test_a_metric_that_falls_is_told_as_speed_too() -> None:
    view = advice_view(CACHES, speeds=SPREAD)
    (load,) = view.workloads
    slower = replace(
        view, workloads=(replace(load, higher_is_better=False, lines=load.lines[::-1]),)
    )
    found = one(slower)  # the smallest figure is the best: writethrough
    assert cache_of(found) == "writethrough"
    assert found.beside is not None and found.beside.times.ratio < 1


def test_a_cell_that_nobody_judged_is_not_taken_before_one_that_keeps() -> None:
    def judge(cell: Cell) -> Mapping[Fault, Durability]:
        return {"power": "keeps"} if cell.level("cache") == "none" else {}

    found = one(advice_view(CACHES, speeds=SPREAD, judge=judge))
    assert cache_of(found) == "none" and found.keeps
    assert "is not judged yet" in said(found)


def test_without_verdicts_the_command_that_makes_them_and_its_time_are_told() -> None:
    view = advice_view(CACHES, speeds=SPREAD, judge=nobody)
    found = one(view, Wish(file="studies/quick.toml"))
    assert cache_of(found) == "writeback" and not found.keeps
    assert "`diskproof crash studies/quick.toml`, at most" in said(found)
    assert found.judge_seconds == pytest.approx(4 * (2 + 10 + 4 * 20))


def test_rules_of_the_study_shorten_what_judging_takes() -> None:
    text = '[crash]\nseconds = "1s"\nexplore_seconds = "2s"\nfaults = "power"\n'
    view = advice_view(CACHES, speeds=SPREAD, judge=nobody, text=text)
    assert one(view).judge_seconds == pytest.approx(4 * (2 + 1 + 2))


def test_unsafe_is_not_advised_without_a_verdict_either_and_the_rule_is_told() -> None:
    found = one(advice_view(CACHES, speeds=SPREAD, judge=nobody))
    assert "does not carry out flushes (cache=unsafe" in said(found)


def test_no_verdict_lifts_the_rule_on_unsafe() -> None:
    """A search that happened to find nothing is no leave to drop flushes."""
    found = one(advice_view(CACHES, speeds=SPREAD, judge=lambda cell: {"power": "keeps"}))
    assert cache_of(found) == "writeback"


@pytest.mark.parametrize("keep", KEEPS)
def test_only_a_disposable_disk_may_be_unsafe(keep: str) -> None:
    view = advice_view(CACHES, speeds=SPREAD)
    assert cache_of(one(view, Wish(keep=keep))) == "writeback"  # type: ignore[arg-type]
    assert cache_of(one(view, Wish(keep="none", disposable=True))) == "unsafe"


def test_what_outlives_qemu_need_not_outlive_a_power_cut() -> None:
    def judge(cell: Cell) -> Mapping[Fault, Durability]:
        fast = cell.level("cache") == "writeback"
        return {"power": "loses" if fast else "keeps", "qemu-kill": "keeps"}

    view = advice_view(CACHES, speeds=SPREAD, judge=judge)
    assert cache_of(one(view, Wish(keep="power"))) == "none"
    assert cache_of(one(view, Wish(keep="qemu-kill"))) == "writeback"


def test_a_loss_under_a_milder_fault_counts() -> None:
    def judge(cell: Cell) -> Mapping[Fault, Durability]:
        fast = cell.level("cache") == "writeback"
        return {"power": "keeps", "qemu-kill": "corrupts" if fast else "keeps"}

    assert cache_of(one(advice_view(CACHES, speeds=SPREAD, judge=judge))) == "none"


def test_nothing_keeps_nothing_is_advised() -> None:
    found = one(advice_view(CACHES, speeds=SPREAD, judge=lambda cell: {"power": "loses"}))
    assert found.chosen is None and not found.keeps
    assert "none of 4 cells can be advised: one loses 64" in said(found)


BACKINGS = {
    '[backings.fast]\nkind = "zfs"\nsync = "disabled"\n': "sync=disabled",
    '[backings.fast]\nkind = "nbd"\ncache = "unsafe"\n': "NBD server with cache=unsafe",
    '[backings.fast]\nkind = "lio"\nstore = "nullio"\n': "stores nothing at all",
    '[backings.fast]\nkind = "iscsi"\nstore = "aio"\n': "tgt's aio store",
    '[backings.fast]\nkind = "filesystem"\nmount = "noatime,barrier=0"\n': "barrier=0",
    '[backings.fast]\nkind = "tmpfs"\n': "is in memory",
    '[backings.low]\nkind = "tmpfs"\n[backings.fast]\nkind = "filesystem"\non = "low"\n': "memory",
}


@pytest.mark.parametrize("text", BACKINGS)
def test_a_backing_that_drops_flushes_by_rule_is_not_advised(text: str) -> None:
    factors = {"frontend": ("daemon",), "backing": ("fast", "ssd"), "cache": ("none",)}
    view = advice_view(
        factors, speeds={("backing", "fast"): 3.0}, judge=lambda cell: {"power": "keeps"}, text=text
    )
    found = one(view)
    assert found.chosen is not None and found.chosen.cell.level("backing") == "ssd"
    assert BACKINGS[text] in said(found)


def test_a_server_that_was_seen_to_drop_flushes_is_not_advised() -> None:
    factors = {"frontend": ("daemon",), "backing": ("net", "good", "ssd"), "cache": ("none",)}
    none = "flushes passed on: 0 of 5, FUA writes made durable: 0 of 5"
    warnings = (
        f"the server of backing net: {none}, plain writes made durable: 0 of 5",
        f"the server of backing good: {none}, plain writes made durable: 5 of 5",
    )
    speeds = {("backing", "net"): 4.0, ("backing", "good"): 2.0}
    found = one(advice_view(factors, speeds=speeds, judge=nobody, warnings=warnings))
    assert found.chosen is not None and found.chosen.cell.level("backing") == "good"
    assert "did not pass flushes on" in said(found)


def test_cells_of_the_bare_host_are_never_advised() -> None:
    factors = {**CACHES, "frontend": ("host", "container", "daemon")}
    found = one(advice_view(factors, speeds=SPREAD))  # the host's are faster, in the simulation
    assert found.frontend == "daemon"
    assert {each.cell.level("frontend") for each in (*found.faster, *found.ties)} == {"daemon"}
    alone = advice_view({**CACHES, "frontend": ("host",)}, speeds=SPREAD)
    assert recommend_all(alone) == ()


@pytest.mark.parametrize(("accel", "frontend"), [("kvm", "guest"), ("tcg", "daemon")])
def test_a_guest_tells_more_than_a_daemon_unless_it_was_emulated(accel: str, frontend: str) -> None:
    host = HostRecord("h1", "lab", {"accel": accel, "kernel": "6.1", "qemu_version": "7.2"})
    factors = {**CACHES, "frontend": ("guest", "daemon")}
    assert one(advice_view(factors, speeds=SPREAD, host=host)).frontend == frontend


def test_what_carries_over_from_an_emulated_guest_is_told() -> None:
    host = HostRecord("h1", "lab", {"accel": "tcg", "kernel": "6.1", "qemu_version": "7.2"})
    view = advice_view({**CACHES, "frontend": ("guest",)}, speeds=SPREAD, host=host)
    told = dict(find_conditions(one(view), view))
    assert "may not carry over" in told["guest"] and "what is durable" in told["guest"]


# -- ties -----------------------------------------------------------------------------------


def test_of_equal_cells_the_stack_s_default_is_advised() -> None:
    view = advice_view(DAEMON, speeds=EQUAL)
    found = one(view, Wish(stack="Proxmox VE", defaults={"cache": "none", "format": "raw"}))
    assert not found.proved and found.is_default and cache_of(found) == "none"
    assert "no difference is proved between 6 cells: stay with what Proxmox VE gives" in said(found)


def test_a_default_that_was_not_measured_is_told_so() -> None:
    defaults = {"cache": "none", "aio": "io_uring"}
    found = one(advice_view(DAEMON, speeds=EQUAL), Wish(stack="Proxmox VE", defaults=defaults))
    assert not found.is_default and found.default is None and cache_of(found) == "none"
    assert "which was not measured; the nearest to it is" in said(found)


def test_a_default_that_loses_is_not_stayed_with() -> None:
    found = one(advice_view(CACHES, speeds=EQUAL), Wish(defaults={"cache": "unsafe"}))
    assert cache_of(found) in ("none", "writeback", "writethrough")
    assert "stay with" not in said(found) and "loses 64" in said(found)


def test_a_tie_is_named_and_the_simplest_taken() -> None:
    factors = {**CACHES, "detect-zeroes": ("off", "on")}
    found = one(advice_view(factors, speeds=SPREAD))
    assert found.chosen is not None and found.chosen.cell.level("detect-zeroes") == "off"
    assert [each.cell.level("detect-zeroes") for each in found.ties] == ["on"]
    assert "The same with detect-zeroes=on could not be told apart from the best" in said(found)


def test_the_simple_cell_of_a_tie_is_taken_only_if_it_shares_the_gain() -> None:
    """Enough scatter that the middle one is told apart from neither side."""
    factors = {"frontend": ("daemon",), "l2-cache-size": ("32M", "2M", "8M"), "cache": ("none",)}
    for seed in range(30):
        speeds = {("l2-cache-size", "2M"): 1.12, ("l2-cache-size", "32M"): 1.05}
        found = one(advice_view(factors, speeds=speeds, seed=seed, cv=0.02))
        if found.proved and found.beside:
            assert found.beside.is_apart
        if found.proved and found.chosen is not None and found.chosen is not found.leader:
            slowest = found.load.lines[-1].ranked
            assert not set(slowest.groups) & set(found.chosen.line.ranked.groups)


def test_single_runs_prove_nothing() -> None:
    found = one(advice_view(CACHES, speeds=SPREAD, blocks=1))
    assert not found.proved and found.is_default


def test_the_same_store_gives_the_same_answer_whatever_the_order() -> None:
    view = advice_view(DAEMON, speeds=EQUAL, seed=3)
    first = one(view)
    again = one(advice_view(DAEMON, speeds=EQUAL, seed=3))
    assert first.chosen is not None and again.chosen is not None
    assert first.chosen.cell == again.chosen.cell


def test_equal_cells_have_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    """A/A: at most 5 % of answers may name a winner; the bound allows for the luck of so many."""
    studies = 200
    won = 0
    for seed in range(studies):
        view = advice_view(DAEMON, speeds=EQUAL, seed=seed, blocks=(3, 5, 10)[seed % 3])
        won += any(found.proved for found in recommend_all(view))
    with capsys.disabled():
        sys.stdout.write(f"A/A: {won} of {studies} answers named a winner ({won / studies:.1%})\n")
    assert won <= binom.ppf(0.999, studies, 0.05)
    assert won <= 0.05 * studies


# -- races, sizes, several loads --------------------------------------------------------------


def test_a_race_s_own_leader_and_ties_are_told() -> None:
    view = advice_view(CACHES, speeds=SPREAD, blocks=8, text=RACE)
    race = view.parts["race"]["sync-write"]
    found = one(view)
    assert race.leaders and race.leaders[0].level("cache") == "unsafe"
    assert cache_of(found) == "writeback"  # the race was won by what may not be advised
    safe = one(advice_view(CACHES, speeds=SPREAD, blocks=8, text=RACE,
                           keep=lambda cell: cell.level("cache") != "unsafe"))  # fmt: skip
    assert cache_of(safe) == "writeback" and safe.proved and safe.race is not None
    assert "race" in dict(find_conditions(safe, view))


def test_equal_cells_of_a_race_are_a_tie() -> None:
    won = 0
    for seed in range(40):
        view = advice_view(DAEMON, speeds=EQUAL, blocks=8, text=RACE, seed=seed)
        won += one(view).proved
    assert won <= binom.ppf(0.999, 40, 0.05)


def test_a_study_of_users_size_is_answered_in_time() -> None:
    factors = {
        "frontend": ("daemon",),
        "format": ("raw", "qcow2"),
        "cache": ("none", "writeback", "writethrough", "directsync", "unsafe"),
        "aio": ("threads", "native"),
        "detect-zeroes": ("off", "on"),
        "iothread": ("off", "on"),
    }

    def can_be(cell: Cell) -> bool:
        direct = cell.level("cache") in ("none", "directsync")
        return cell.level("aio") == "threads" or direct

    view = advice_view(factors, ("rand-read", "sync-write"), keep=can_be)
    assert sum(len(load.lines) for load in view.workloads) == 2 * 56
    began = time.monotonic()
    for dialect in DIALECTS.values():
        answers = find_answers(view, Wish(), dialect, Target())
        assert len(answers) == 2 and all(each.found.keeps for each in answers)
    assert time.monotonic() - began < 60  # a hang, not a benchmark


def test_many_equal_cells_and_loads_are_answered_in_time() -> None:
    factors = {
        "frontend": ("daemon",),
        "format": ("raw", "qcow2"),
        "cache": ("none", "writeback", "writethrough", "directsync", "unsafe"),
        "discard": ("ignore", "unmap"),
        "detect-zeroes": ("off", "on"),
        "iothread": ("off", "on"),
    }
    view = advice_view(factors, ("a", "b", "c"), speeds=EQUAL, blocks=3)
    assert all(len(load.lines) == 80 for load in view.workloads)
    began = time.monotonic()
    assert len(settle(view)) == 3
    assert time.monotonic() - began < 60  # a hang, not a benchmark


def test_one_disk_for_all_loads_where_one_would_do() -> None:
    view = advice_view(DAEMON, ("rand-read", "sync-write", "seq-read"), speeds=EQUAL, seed=4)
    found = settle(view)
    assert len({levels_id(each.chosen.cell) for each in found if each.chosen}) == 1


def test_loads_that_disagree_keep_their_own() -> None:
    view = advice_view(CACHES, ("a", "b"), speeds=SPREAD)
    first, second = view.workloads
    turned = replace(
        second, higher_is_better=False, lines=second.lines[::-1]
    )  # what was slow is fast
    found = settle(replace(view, workloads=(first, turned)))
    assert len({cache_of(each) for each in found}) == 2
