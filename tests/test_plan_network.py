"""Plans with disks that are reached over a network."""

from dataclasses import replace

import pytest

from diskproof.errors import StudyError
from diskproof.plan import Plan, make_crash_plan, make_plan
from diskproof.records import BackingFacts
from diskproof.study.load import parse_study
from support.planning import FACTS, facts_with

TOLD = "flushes passed on: 0 of 5"
TABLES = """
workloads = ["seq-read"]
[backings.file]
path = "/images"
[backings.nbd]
kind = "nbd"
[backings.iscsi]
kind = "iscsi"
[factors]
backing = ["file", "nbd", "iscsi"]
"""


def remote(driver: str, *, fio: bool) -> BackingFacts:
    return BackingFacts("/images", driver, True, "", 1 << 40, network=driver, fio=fio, flushes=TOLD)


BACKINGS = {
    "file": FACTS.backings["directory"],
    "nbd": remote("nbd", fio=True),
    "iscsi": remote("iscsi", fio=False),
}


def plan(factors: str, workloads: str = "") -> Plan:
    text = TABLES.replace('"seq-read"', workloads) if workloads else TABLES
    facts = facts_with(backings=BACKINGS, frontends=FACTS.frontends | {"container"})
    return make_plan(parse_study(text + factors), facts)


def test_a_way_to_read_files_means_nothing_to_a_server() -> None:
    made = plan('format = "raw"\ncache = "none"\naio = ["threads", "native", "io_uring"]')
    found = sorted((cell.level("backing"), cell.level("aio")) for cell in made.cells)
    files = [("file", "io_uring"), ("file", "native"), ("file", "threads")]
    assert found == [*files, ("iscsi", ""), ("nbd", "")]
    assert made.dropped == ()


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ('format = ["raw", "qcow2"]', "format=qcow2 is for files, and a disk over nbd is raw"),
        (
            'format = "raw"\npreallocation = ["off", "full"]',
            "preallocation=full is for files, and this disk is reached over iscsi",
        ),
        (
            'frontend = ["host", "daemon"]\nformat = "raw"',
            "frontend=host does not reach iscsi: fio has no client for it, and the kernel's "
            "initiator is not used",
        ),
        (
            'frontend = ["container", "daemon"]\nformat = "raw"',
            "frontend=container takes disks of this host only, not over nbd",
        ),
    ],
)
def test_what_is_for_files_is_dropped_with_its_reason(factors: str, reason: str) -> None:
    made = plan(factors)
    assert reason in [each.reason for each in made.dropped]
    assert {cell.level("backing") for cell in made.cells} == {"file", "nbd", "iscsi"}


@pytest.mark.parametrize(("workload", "frontend"), [("dd-write", "host"), ("boots", "guest")])
def test_programs_that_need_a_local_disk(workload: str, frontend: str) -> None:
    levels = 'format = "raw"\nmemory = "1G"'
    made = plan(f'frontend = "{frontend}"\n{levels}', f'"{workload}"')
    assert {cell.level("backing") for cell in made.cells} == {"file"}
    reason = f"{workload} needs a disk of this host, and this one is reached over nbd"
    assert reason in [each.reason for each in made.dropped]


def test_what_servers_do_with_flushes_is_told() -> None:
    told = [text for text in plan('format = "raw"').warnings if TOLD in text]
    assert told == [f"the server of backing {name}: {TOLD}" for name in ("nbd", "iscsi")]


def test_a_crash_is_recorded_in_files_only() -> None:
    text = TABLES.replace('["file", "nbd", "iscsi"]', '"nbd"') + 'format = "raw"\n'
    with pytest.raises(StudyError, match="backing nbd is over nbd"):
        make_crash_plan(parse_study(text), facts_with(backings=BACKINGS))


def test_a_server_that_the_study_names_is_written_on() -> None:
    named = TABLES.replace('kind = "nbd"', 'kind = "nbd"\nuri = "nbd://disks:10810/lent"')
    assert [spec.name for spec in parse_study(named).backings if spec.targets] == ["nbd"]
    assert not any(spec.targets for spec in parse_study(TABLES).backings)


def test_nothing_is_made_on_a_disk_over_a_network() -> None:
    table = '[backings.fs]\nkind = "filesystem"\non = "iscsi"\n[factors]\n'
    with pytest.raises(StudyError, match="iscsi is reached over a network, and nothing is made"):
        parse_study(TABLES.replace("[factors]\n", table))


@pytest.mark.parametrize("uri", ["http://disks/lent", "nbd://disks", "nbd://a b/c", "nbd:///d,e"])
def test_what_is_no_uri(uri: str) -> None:
    with pytest.raises(StudyError, match="is not like nbd://HOST:PORT/EXPORT"):
        parse_study(TABLES.replace('kind = "nbd"', f'kind = "nbd"\nuri = "{uri}"'))


def test_cache_modes_that_are_the_same_over_a_network_are_measured_once() -> None:
    modes = '["writeback", "none", "writethrough", "directsync", "unsafe"]'
    made = plan(f'format = "raw"\naio = "threads"\ncache = {modes}')
    found = sorted((cell.level("backing"), cell.level("cache")) for cell in made.cells)
    files = ["directsync", "none", "unsafe", "writeback", "writethrough"]
    once = ["unsafe", "writeback", "writethrough"]
    assert [cache for name, cache in found if name == "file"] == files
    assert [cache for name, cache in found if name == "nbd"] == once
    told = {each.reason.partition(",")[0]: each.count for each in made.dropped}
    assert told == {
        "cache=none over a network is cache=writeback": 2,
        "cache=directsync over a network is cache=writethrough": 2,
    }
    only = plan('format = "raw"\ncache = ["none"]\naio = "threads"')
    assert {cell.level("cache") for cell in only.cells} == {"none"} and not only.dropped


def test_a_server_that_does_not_start_is_left_out_with_its_reason() -> None:
    dead = replace(BACKINGS["iscsi"], obstacle="tgtd ended with status 126")
    facts = facts_with(backings={**BACKINGS, "iscsi": dead})
    made = make_plan(parse_study(TABLES + 'format = "raw"\n'), facts)
    assert {cell.level("backing") for cell in made.cells} == {"file", "nbd"}
    told = [each.reason for each in made.dropped]
    assert told == ["backing iscsi does not work here: tgtd ended with status 126"]
