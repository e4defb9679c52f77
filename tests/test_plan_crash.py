"""Crash cells from a study's factors and filters."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import StudyError
from diskproof.plan import make_crash_plan, make_plan
from diskproof.records.verdicts import FAULTS
from diskproof.study.crash import WRITERS, CrashRules, faults_of
from diskproof.study.load import parse_study
from support.planning import FACTS, facts_with


def cells_of(text: str) -> list[tuple[str, str, str]]:
    cells, _ = make_crash_plan(parse_study(text), FACTS)
    return [(c.level("frontend"), c.level("cache"), c.workload.name) for c in cells]


def test_every_study_has_crash_cells_with_the_ledger() -> None:
    text = '[factors]\nfrontend = ["host", "daemon"]\ncache = ["none", "unsafe"]\n'
    assert cells_of(text) == [
        ("host", "", "ledger"),
        ("daemon", "none", "ledger"),
        ("daemon", "unsafe", "ledger"),
    ]


def test_a_writer_that_a_frontend_cannot_carry_is_dropped_with_the_reason() -> None:
    text = '[factors]\nfrontend = ["daemon", "guest"]\n[crash]\nwriters = ["ledger", "ledger-fs"]\n'
    cells, dropped = make_crash_plan(parse_study(text), FACTS)
    assert [(c.level("frontend"), c.workload.name) for c in cells] == [
        ("daemon", "ledger"),
        ("guest", "ledger"),
        ("guest", "ledger-fs"),
    ]
    assert dropped[-1].reason == "the writer ledger-fs needs frontend=guest, not daemon"


def test_the_minimal_guest_carries_the_ledger_only() -> None:
    text = '[factors]\nfrontend = "guest"\n[crash]\nwriters = ["ledger", "sqlite"]\n'
    facts = facts_with(minimal_guest=frozenset({"bus=virtio-blk"}))
    cells, dropped = make_crash_plan(parse_study(text), facts)
    assert [c.workload.name for c in cells] == ["ledger"]
    assert dropped[-1].reason == "the writer sqlite needs the whole guest: `diskproof guest build`"


def test_postgres_in_a_guest_needs_a_larger_disk_than_on_the_host() -> None:
    text = '[factors]\nfrontend = ["host", "guest"]\n[crash]\nwriters = ["postgres", "sqlite"]\n'
    cells, dropped = make_crash_plan(parse_study(text), FACTS)
    assert [(c.level("frontend"), c.workload.name) for c in cells] == [
        ("host", "postgres"),
        ("host", "sqlite"),
        ("guest", "sqlite"),
    ]
    assert dropped[-1].reason == (
        "the writer postgres on ext4 in a guest needs [crash] size = 96 MiB or more"
    )
    cells, _ = make_crash_plan(parse_study(f'{text}size = "96MiB"\nmount = "barrier=0"\n'), FACTS)
    assert [c.workload.option("mount") for c in cells] == ["", "", "barrier=0", "barrier=0"]


def test_nothing_left_says_why() -> None:
    with pytest.raises(StudyError, match="leaves nothing to crash") as caught:
        cells_of('[crash]\nwriters = "ledger-fs"\n')
    assert "needs frontend=guest" in caught.value.why


def test_filters_about_loads_do_not_narrow_writers_and_the_other_way_round() -> None:
    text = """
    workloads = ["seq-read", "seq-write"]
    [factors]
    cache = ["none", "writeback", "unsafe"]
    [[only]]
    cache = ["none", "unsafe"]
    workload = "seq-read"
    [[only]]
    cache = "writeback"
    workload = "ledger"
    [[exclude]]
    cache = "unsafe"
    workload = "seq-write"
    """
    assert [cache for _, cache, _ in cells_of(text)] == ["none", "writeback", "unsafe"]
    made = make_plan(parse_study(text), FACTS).cells
    assert {(c.level("cache"), c.workload.name) for c in made} == {
        ("none", "seq-read"),
        ("unsafe", "seq-read"),
    }


def test_rules_are_in_the_cell_and_not_in_the_studys_id() -> None:
    short, long = parse_study("[crash]\nrecords = 10\n"), parse_study("[crash]\nrecords = 20\n")
    assert short.id == long.id
    (a,), _ = make_crash_plan(short, FACTS)
    (b,), _ = make_crash_plan(long, FACTS)
    assert (a.workload.option("records"), b.workload.option("records")) == ("10", "20")
    assert a.id != b.id and a.levels == b.levels
    assert a.workload.option("seed") == str(short.seed)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('writers = "ledgr"', "did you mean 'ledger'"),
        ('faults = ["powr"]', "did you mean 'power'"),
        ("records = 0", "not a whole number from 1 to 100000"),
        ('size = "2GiB"', "at most 1 GiB"),
        ('size = "auto"', "at most 1 GiB"),
        ("sector = 1000", "power of two from 64 to 65536"),
        ('second = "3s"', "did you mean 'seconds'"),
        ("writers = []", "at least 1,"),
    ],
)
def test_mistakes_name_the_line(table: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(f'name = "x"\n[crash]\n{table}\n')
    assert str(caught.value).startswith("study.toml:3:")
    assert message in str(caught.value)


@given(st.lists(st.sampled_from(FAULTS), unique=True), st.sampled_from(["host", "daemon", "guest"]))
def test_the_bare_host_has_no_guest_to_kill(faults: list[str], frontend: str) -> None:
    found = faults_of(frontend, tuple(faults))  # type: ignore[arg-type]
    assert set(found) == set(faults) - ({"guest-kill"} if frontend == "host" else set())


def test_defaults_are_known() -> None:
    assert set(CrashRules().writers) <= set(WRITERS)
    assert CrashRules().faults == FAULTS[:4]


def test_a_block_device_cannot_be_recorded() -> None:
    text = (
        '[backings.disk]\nkind = "device"\npath = "/dev/sdz"\n[backings.here]\npath = "/images"\n'
    )
    device = replace(FACTS.backings["directory"], device=True)
    facts = facts_with(backings={"disk": device, "here": FACTS.backings["directory"]})
    cells, dropped = make_crash_plan(parse_study(text), facts)
    assert {cell.level("backing") for cell in cells} == {"here"}
    assert "backing disk is a block device" in dropped[-1].reason
