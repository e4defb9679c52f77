"""From a study to cells: collapse, drops with reasons, sizes."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from diskproof.errors import HostError, StudyError
from diskproof.plan import Plan, estimate, estimate_seconds, make_plan
from diskproof.records import BackingFacts, HostFacts
from diskproof.study.factors import FACTOR_BY_NAME
from diskproof.study.ground import Ground, find_grounds
from diskproof.study.like import keep_warnings
from diskproof.study.load import load_study, parse_study
from diskproof.study.workloads import CACHE_LIMIT
from support.planning import FACTS, facts_with

OWN = BackingFacts("/images", "ext4", True, "", 1 << 40, own=True)
STUDIES = sorted((Path(__file__).parents[1] / "studies").glob("*.toml"))


def plan(factors: str, rest: str = "", facts: HostFacts = FACTS, size: str = "1GiB") -> Plan:
    text = f'name = "t"\nworkloads = ["seq-write"]\n{rest}\n[factors]\n{factors}\n'
    return make_plan(parse_study(f'{text}[protocol]\nsize = "{size}"\n'), facts)


def reasons(made: Plan) -> dict[str, int]:
    return {dropped.reason: dropped.count for dropped in made.dropped}


def levels(made: Plan, factor: str) -> list[str]:
    return sorted(cell.level(factor, "-") for cell in made.cells)


def test_host_collapses_to_one_baseline_cell() -> None:
    made = plan(
        'frontend = ["host", "daemon"]\nformat = ["raw", "qcow2"]\ncache = ["none", "unsafe"]'
    )
    assert levels(made, "frontend") == ["daemon"] * 4 + ["host"]
    host = next(cell for cell in made.cells if cell.level("frontend") == "host")
    assert host.levels == (("backing", "directory"), ("frontend", "host"))


def test_a_container_is_a_baseline_as_the_host_is() -> None:
    facts = facts_with(frontends=FACTS.frontends | {"container"})
    axes = 'frontend = ["host", "container"]\nformat = ["raw", "qcow2"]\ncache = "unsafe"'
    made = plan(axes, facts=facts, size="auto")
    assert levels(made, "frontend") == ["container", "host"]
    assert levels(made, "format") == ["-", "-"]
    assert {cell.workload.option("size") for cell in made.cells} == {str(4 << 30)}  # direct I/O
    missing = plan(axes, facts=facts_with(reasons={"frontend=container": "no crun"}))
    assert levels(missing, "frontend") == ["host"]
    assert reasons(missing) == {"frontend=container does not work here: no crun": 1}


def test_what_the_minimal_guest_lacks_is_left_out_with_the_reason() -> None:
    has = {"dd", "env", "cp", "mount", "umount", "sync", "mkfs.ext4", "module ext4"}
    facts = facts_with(minimal_guest=frozenset({*has, "bus=virtio-blk"}))
    text = """[workloads]
rand-read-4k-d1 = {}
dd-write = {}
tree-copy = { filesystem = "xfs" }
own = { command = ["stress-ng", "{disk}"] }
[factors]
frontend = ["guest", "daemon"]
bus = ["virtio-blk", "nvme"]
"""
    made = make_plan(parse_study(text), facts)
    cells = {(cell.level("frontend"), cell.workload.name, cell.level("bus")) for cell in made.cells}
    assert cells == {("daemon", "rand-read-4k-d1", ""), ("guest", "dd-write", "virtio-blk")}
    lacks = {each.split(": ")[0] for each in reasons(made) if "minimal" in each}
    assert lacks == {
        "the minimal guest lacks fio",
        "the minimal guest lacks stress-ng",
        "the minimal guest lacks mkfs.xfs, module xfs",
        "the minimal guest lacks bus=nvme",
    }
    assert all("`diskproof guest build`" in each for each in reasons(made) if "minimal" in each)


def test_no_knob_of_a_cell_is_hidden() -> None:
    cell = plan('frontend = "guest"').cells[0]
    assert cell.levels_dict() == {
        "accel": "tcg", "aio": "threads", "backing": "directory", "bus": "virtio-blk",
        "cache": "writeback", "cluster_size": "64K", "detect-zeroes": "off", "discard": "ignore",
        "format": "qcow2", "frontend": "guest", "iothread": "off", "l2-cache-size": "32M",
        "lazy_refcounts": "off", "memory": "512M", "preallocation": "off", "vcpus": "1",
    }  # fmt: skip


def test_qcow2_options_collapse_for_raw() -> None:
    made = plan('format = ["raw", "qcow2"]\ncluster_size = ["64K", "1M", "2MiB"]')
    assert levels(made, "cluster_size") == ["-", "1M", "2M", "64K"]


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ('aio = ["threads", "native"]', "aio=native needs cache=none or directsync, not writeback"),
        (
            'format = "qed"\npreallocation = ["off", "full"]',
            "needs format=raw or qcow2, not qed",
        ),
        (
            'format = "raw"\npreallocation = ["off", "metadata"]',
            "needs format=qcow2, not raw",
        ),
        ('detect_zeroes = ["off", "unmap"]', "detect-zeroes=unmap needs discard=unmap"),
        ('frontend = "guest"\nbus = "ide"\niothread = ["on", "off"]', "bus=ide takes no iothread"),
        ('frontend = "guest"\naccel = ["auto", "kvm"]', "the probe's guest did not answer"),
    ],
)
def test_what_cannot_work_is_dropped_with_its_reason(factors: str, reason: str) -> None:
    made = plan(factors)
    assert len(made.cells) == 1
    assert [count for text, count in reasons(made).items() if reason in text] == [1]


def test_direct_io_is_asked_of_the_directory() -> None:
    refusing = BackingFacts("/mnt", "fuse", False, "open with O_DIRECT: Invalid argument", 1 << 40)
    made = plan(
        'cache = ["none", "writeback", "directsync"]',
        facts=facts_with(backings={"directory": refusing}),
    )
    assert levels(made, "cache") == ["writeback"]
    assert sum(n for text, n in reasons(made).items() if "Invalid argument" in text) == 2


def test_levels_the_host_lacks_carry_its_words() -> None:
    facts = facts_with(
        aio=frozenset({"threads"}), reasons={"aio=io_uring": "the kernel forbids io_uring"}
    )
    made = plan('aio = ["threads", "io_uring"]', facts=facts)
    assert "aio=io_uring does not work here: the kernel forbids io_uring" in reasons(made)


def test_only_and_exclude() -> None:
    made = plan(
        'frontend = ["daemon", "guest"]\ncache = ["none", "writeback", "unsafe"]',
        '[[only]]\nfrontend = "daemon"\n[[only]]\nfrontend = "guest"\ncache = "none"\n'
        '[[exclude]]\ncache = "unsafe"',
    )
    assert levels(made, "frontend") == ["daemon", "daemon", "guest"]
    assert levels(made, "cache") == ["none", "none", "writeback"]


def test_nothing_left_names_what_removed_it() -> None:
    with pytest.raises(StudyError) as caught:
        plan('format = "qed"\npreallocation = "full"')
    assert "needs format=raw or qcow2, not qed" in caught.value.why


def test_auto_size_is_twice_the_memory_that_could_cache_it() -> None:
    direct = plan('cache = "none"', size="auto")
    buffered = plan('cache = ["none", "writeback"]', size="auto")
    assert {cell.workload.option("size") for cell in direct.cells} == {str(4 << 30)}
    assert {cell.workload.option("size") for cell in buffered.cells} == {str(16 << 30)}
    (told,) = buffered.warnings
    assert told.startswith("size auto: 16 GiB") and "cannot be bounded (not tried)" in told


BOUNDING = facts_with(bounds_caches=True)


def sizes(made: Plan) -> set[tuple[int, int]]:
    """(disk, memory that a run may have) of the cells, in MiB."""
    loads = [cell.workload for cell in made.cells]
    return {(int(w.option("size")) >> 20, int(w.option(CACHE_LIMIT, "0")) >> 20) for w in loads}


def test_where_the_cache_can_be_bounded_the_disk_need_not_be_large() -> None:
    buffered = plan('cache = ["none", "writeback"]', facts=BOUNDING, size="auto")
    assert sizes(buffered) == {(4096, 1024)}  # all cells alike, so that they compare
    (told,) = buffered.warnings
    assert "4 GiB" in told and "1 GiB of memory, page cache included" in told
    guests = 'frontend = "guest"\ncache = "writeback"\nmemory = "3G"'
    assert sizes(plan(guests, facts=BOUNDING, size="auto")) == {(8704, 4352)}
    assert sizes(plan('cache = "none"', facts=BOUNDING, size="auto")) == {(4096, 0)}


@pytest.mark.parametrize("kind", [{"own": True}, {"network": "nbd"}, {"filesystem": "zfs"}])
def test_a_second_cache_is_not_bounded(kind: dict[str, Any]) -> None:
    backing = replace(FACTS.backings["directory"], **kind)
    facts = facts_with(bounds_caches=True, backings={"directory": backing})
    factors = 'cache = "writeback"\nformat = "raw"'
    assert sizes(plan(factors, facts=facts, size="auto")) == {(16384, 0)}


def test_ids_of_cells_with_a_size_do_not_know_of_bounds() -> None:
    factors = 'cache = ["none", "writeback"]'
    plain, bounding = plan(factors), plan(factors, facts=BOUNDING)
    assert [cell.id for cell in plain.cells] == [cell.id for cell in bounding.cells]


def test_a_kernel_that_pages_out_idle_memory_is_told_to_whoever_measures_caches() -> None:
    reclaiming = facts_with(bounds_caches=True, idle_seconds=30.0)
    cached = 'cache = ["none", "writeback"]'
    (told,) = set(plan(cached, facts=reclaiming).warnings) - set(
        plan(cached, facts=BOUNDING).warnings
    )
    assert "what nothing touched for 30 s (DAMON)" in told and "doctor" in told
    direct = 'cache = "none"'
    assert plan(direct, facts=reclaiming).warnings == plan(direct, facts=BOUNDING).warnings


def test_a_small_disk_warns_which_cache_modes_hold_it() -> None:
    (warning,) = plan('cache = ["none", "writeback", "unsafe"]', size="256MiB").warnings
    assert "256 MiB" in warning and "unsafe, writeback" in warning and "8 GiB" in warning


def test_more_processors_than_the_host_has_are_told_of() -> None:
    text = 'frontend = "guest"\nvcpus = [{}]\n'
    told = "a guest has 64 processors and the host"
    assert [each for each in plan(text.format("2, 64")).warnings if each.startswith(told)]
    assert not [each for each in plan(text.format("1")).warnings if "a guest has" in each]


def test_no_room_is_said_before_anything_runs() -> None:
    small = BackingFacts("/small", "ext4", True, "", 1 << 30)
    made = plan("", facts=facts_with(backings={"directory": small}), size="4GiB")
    assert len(made.cells) == 1 and made.obstacle  # the plan is there all the same
    assert "/small" in made.obstacle.what and "1 GiB are free" in made.obstacle.why
    assert '[protocol] size = "752MiB" fits: then re-reads' in made.obstacle.hint
    fits = plan("", facts=facts_with(backings={"directory": small}), size="752MiB")
    more = plan("", facts=facts_with(backings={"directory": small}), size="753MiB")
    assert fits.obstacle is None and more.obstacle


def test_too_many_combinations_is_an_error_at_once() -> None:
    with pytest.raises(StudyError, match="combinations"):
        plan('frontend = "guest"\nvcpus = [' + ",".join(map(str, range(1, 65))) + "]\n"
             'cluster_size = ["4K","8K","16K","32K","64K","128K","256K","512K","1M","2M"]\n'
             'cache = ["none", "writeback", "writethrough", "directsync", "unsafe"]\n'
             'bus = ["virtio-blk", "virtio-scsi", "ide", "ahci", "nvme"]\n'
             'format = ["raw", "qcow2", "qed"]\naio = ["threads", "native", "io_uring"]\n'
             'discard = ["ignore", "unmap"]')  # fmt: skip


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_every_study_of_ours_plans(file: Path, tmp_path: Path) -> None:
    copies = copytree(file.parent, tmp_path / "studies")
    for image in ("vm.qcow2", "windows.qcow2"):  # the user's, looked at when a study is read
        (copies / image).write_bytes(b"QFI\xfb")
    study = load_study(copies / file.name)
    made = make_plan(
        study, facts_with(backings=dict.fromkeys([b.name for b in study.backings], OWN))
    )
    assert made.cells
    assert len({cell.id for cell in made.cells}) == len(made.cells)
    told = estimate(made, study.blocks)
    parts = dict(told.phases.parts)
    assert parts["workload"] > 0 and sum(parts.values()) == pytest.approx(told.seconds)


def test_the_demo_is_short() -> None:
    study = load_study(STUDIES[[file.stem for file in STUDIES].index("quick")])
    cells = make_plan(study, FACTS).cells
    seconds = study.blocks * sum(estimate_seconds(cell) for cell in cells)
    assert seconds < 180
    assert sum(cell.level("frontend") == "guest" for cell in cells) == 2


def test_an_iothread_that_ends_the_daemon_is_left_out_there_only() -> None:
    facts = facts_with(reasons={"frontend=daemon,iothread=on": "it ends"})
    made = plan('frontend = ["daemon", "guest"]\niothread = ["on", "off"]', facts=facts)
    assert reasons(made) == {"iothread=on does not work with frontend=daemon: it ends": 1}
    assert len(made.cells) == 3


COPY = """
workloads = {tree-copy = {source_on = "ssd"}}
[backings.ssd]
kind = "directory"
path = "/images"
[backings.hdd]
kind = "directory"
path = "/images"
[factors]
frontend = ["host", "guest"]
backing = ["hdd", "ssd"]
[protocol]
size = "1GiB"
"""


def plan_copy(**ssd: object) -> Plan:
    plain = BackingFacts("/images", "ext4", True, "", 4 << 30)
    backings = {"hdd": plain, "ssd": replace(plain, **ssd)}
    return make_plan(parse_study(COPY), facts_with(backings=backings))


def test_a_source_may_be_on_any_backing_with_files() -> None:
    made = plan_copy()
    assert levels(made, "backing") == ["hdd", "hdd", "ssd", "ssd"]
    assert [backing.name for backing in parse_study(COPY).backings] == ["ssd", "hdd"]
    device = reasons(plan_copy(device=True))
    assert any("a bare device: on the host" in reason for reason in device)
    assert any("one device, and the target's" in reason for reason in device)
    with pytest.raises(StudyError) as caught:
        plan_copy(network="nbd")
    assert "is reached over nbd" in caught.value.why


def test_a_source_beside_its_target_needs_twice_the_room() -> None:
    obstacle = plan_copy(free_bytes=2 << 30).obstacle
    assert obstacle and "does not fit" in obstacle.what and "2.54 GiB are needed" in obstacle.why


def test_a_source_only_is_probed_and_made_but_no_level() -> None:
    study = parse_study(COPY.replace('["hdd", "ssd"]', '["hdd"]'))
    assert {backing.name for backing in study.backings} == {"hdd", "ssd"}
    assert study.levels(FACTOR_BY_NAME["backing"]) == ("hdd",)


def test_a_source_that_the_study_does_not_know_is_a_mistake_with_its_line() -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(COPY.replace('source_on = "ssd"', 'source_on = "sdd"'))
    assert "ssd" in str(caught.value) and "2:" in str(caught.value)


def test_what_backings_lie_on_is_told_and_which_share_a_disk() -> None:
    one = BackingFacts("/a", "ext4", True, "", 4 << 30, ground="in /a: ext4", disks=("vda",))
    backings = {"ssd": replace(one, trims=True), "hdd": one}
    made = make_plan(parse_study(COPY), facts_with(backings=backings))
    assert find_grounds(made.warnings) == (
        Ground("hdd", "in /a: ext4, shared with backing ssd"),
        Ground("ssd", "in /a: ext4, shared with backing hdd"),
    )
    kept = keep_warnings(made.warnings)
    assert [text for text in kept if "discard" in text and "backing ssd." in text]
    assert not [text for text in kept if "lies in" in text]


def test_a_missing_tool_is_the_hosts_matter_and_its_package_stands_first() -> None:
    missing = "fio is not installed (Debian: fio); it was not found on PATH; apt-get install fio"
    poor = facts_with(frontends=frozenset(), reasons={"frontend=host": missing})
    with pytest.raises(HostError, match="without: apt-get install fio") as caught:
        plan('frontend = "host"', facts=poor)
    assert caught.value.exit_code == 3 and "is not installed" in caught.value.why


def test_what_a_study_makes_is_told_by_its_name_and_what_gives_it_room() -> None:
    small = BackingFacts("backing fs", "ext4", True, "", 385 << 20, own=True)
    table = '[backings.fs]\nkind = "filesystem"\nsize = "400MiB"\n'
    text = f'workloads = ["seq-read"]\n{table}[protocol]\nsize = "256MiB"\n'
    obstacle = make_plan(parse_study(text), facts_with(backings={"fs": small})).obstacle
    assert obstacle and obstacle.what == "the disk under test does not fit on backing fs"
    assert "(of which 256 MiB stay free), 385 MiB are free" in obstacle.why
    assert "or set a larger size in the [backings] table of fs" in obstacle.hint


def test_what_no_run_could_do_is_left_out_with_its_reason() -> None:
    large = make_plan(
        parse_study('[factors]\nfrontend = "guest"\nmemory = ["1G", "1T"]\n'),
        FACTS,
    )
    told = [each.reason for each in large.dropped]
    assert told == ["memory=1024G is not less than this host's 8 GiB"]
    wide = '[workloads.wide]\npreset = "seq-write"\nbs = "64M"\n[workloads.seq-read]\n'
    made = make_plan(parse_study(f'{wide}[protocol]\nsize = "16MiB"\n'), FACTS)
    assert {cell.workload.name for cell in made.cells} == {"seq-read"}
    (left_out,) = made.dropped
    assert left_out.reason == "wide has blocks of 64M, and the disk is of 16 MiB"
