"""Tile cells from a study's factors and filters, and what fits into the host."""

from dataclasses import replace

import pytest

from diskproof.errors import HostError, StudyError
from diskproof.plan import make_plan, make_tile_plan
from diskproof.plan.tile_costs import (
    LOAD_SECONDS,
    SETUP_SECONDS,
    count_fitting,
    run_seconds,
    tile_memory,
)
from diskproof.records import Cell
from diskproof.study.ground import Ground, find_grounds
from diskproof.study.load import parse_study
from diskproof.study.tile_file import built_in_tile
from diskproof.study.tiles import COMMAND, KIND, LOADS, ROLES, restore_tile
from support.planning import FACTS, facts_with

MIB = 1 << 20


def cells_of(text: str) -> tuple[Cell, ...]:
    return make_tile_plan(parse_study(text), FACTS).cells


def levels_of(text: str, *factors: str) -> list[tuple[str, ...]]:
    return [tuple(cell.level(factor, "-") for factor in factors) for cell in cells_of(text)]


def test_a_study_without_the_table_runs_the_articles_tile_at_its_size() -> None:
    (cell,) = cells_of("")
    assert (cell.workload.name, cell.workload.kind) == ("article", KIND)
    assert (cell.workload.option("scale"), cell.workload.option("service_level")) == ("1", "2")
    assert make_tile_plan(parse_study(""), FACTS).rules.most == 3


def test_the_frontend_is_a_guest_and_the_tile_has_memory_and_processors() -> None:
    text = """
    [factors]
    frontend = ["host", "daemon"]
    cache = ["none", "writeback"]
    memory = ["1G", "2G"]
    vcpus = [1, 2]
    """
    assert levels_of(text, "frontend", "cache", "memory", "vcpus") == [
        ("guest", "none", "-", "-"),
        ("guest", "writeback", "-", "-"),
    ]


def test_share_and_ksm_are_levels_where_they_mean_something() -> None:
    text = '[tiles]\nshare = ["smb", "nfs"]\n'
    assert levels_of(text, "share", "ksm") == [("smb", "-"), ("nfs", "-")]
    assert levels_of('[tiles]\nksm = "off"\n', "ksm") == [("off",)]
    assert levels_of(f'{text}ksm = ["off", "on"]\n', "ksm", "share") == [
        ("off", "smb"),
        ("off", "nfs"),
        ("on", "smb"),
        ("on", "nfs"),
    ]
    assert all(cell.levels == tuple(sorted(cell.levels)) for cell in cells_of(text))


def test_a_tile_without_file_servers_has_no_share(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.toml").write_text(
        '[guests.a]\n[workloads.w]\nfrom = "a"\ncommand = ["true"]\n', encoding="utf-8"
    )
    study = parse_study('[tiles]\ntile = "own.toml"\nshare = ["smb", "nfs"]\n', folder=folder)
    (cell,) = make_tile_plan(study, FACTS).cells
    assert cell.workload.name == "own" and "share" not in cell.levels_dict()


def test_the_tile_is_in_the_cell_and_not_in_the_studys_id() -> None:
    small, large = parse_study('[tiles]\nscale = "1/200"\n'), parse_study("[tiles]\n")
    assert small.id == large.id
    (a,), (b,) = (make_tile_plan(study, FACTS).cells for study in (small, large))
    assert a.id != b.id and a.levels == b.levels
    assert [restore_tile(each.workload.option("tile")) for each in (a, b)] == [built_in_tile()] * 2


@pytest.mark.parametrize("table", ["most = 2", "runs = 5", "counts = [1, 2]"])
def test_what_says_when_to_stop_is_not_in_the_cell(table: str) -> None:
    assert cells_of(f"[tiles]\n{table}\n")[0].id == cells_of("[tiles]\n")[0].id


def test_filters_about_other_frontends_say_nothing_about_tiles() -> None:
    text = """
    workloads = ["seq-read"]
    [factors]
    frontend = ["daemon", "guest"]
    cache = ["none", "writeback", "unsafe"]
    [tiles]
    [[only]]
    frontend = "daemon"
    [[only]]
    frontend = "guest"
    workload = "seq-read"
    cache = ["none", "unsafe"]
    [[exclude]]
    workload = "article"
    cache = "unsafe"
    """
    assert levels_of(text, "cache") == [("none",)]
    planned = make_plan(parse_study(text), FACTS).cells
    guests = [cell.level("cache") for cell in planned if cell.level("frontend") == "guest"]
    assert guests == ["none", "unsafe"]


def test_a_filter_on_memory_does_not_empty_the_plan() -> None:
    text = '[factors]\nfrontend = "guest"\nmemory = ["1G", "2G"]\n'
    assert len(cells_of(f'{text}[[only]]\nmemory = "1G"\n')) == 1
    assert len(cells_of(f'{text}[[exclude]]\nmemory = "1G"\n')) == 1


def test_nothing_left_says_why() -> None:
    with pytest.raises(StudyError, match="leaves no tile to run") as caught:
        cells_of('[factors]\naio = "native"\ncache = "writeback"\n')
    assert "needs cache=none or directsync" in caught.value.why


@pytest.mark.parametrize(("change", "told"), [("device", "block device"), ("network", "over nbd")])
def test_a_backing_of_one_disk_is_left_out(change: str, told: str) -> None:
    text = '[backings.one]\npath = "/a"\n[backings.here]\npath = "/images"\n'
    plain = FACTS.backings["directory"]
    one = replace(plain, device=True) if change == "device" else replace(plain, network="nbd")
    made = make_tile_plan(parse_study(text), facts_with(backings={"one": one, "here": plain}))
    assert {cell.level("backing") for cell in made.cells} == {"here"}
    assert told in made.dropped[-1].reason


# -- memory, disk, time ---------------------------------------------------------------------


def test_a_tile_that_is_too_large_is_refused_with_the_sum() -> None:
    with pytest.raises(HostError) as caught:
        make_tile_plan(parse_study("[tiles]\n"), FACTS, 900 * MIB)
    assert caught.value.why == (
        "4 guests, 1.25 GiB + 288 MiB for each QEMU = 2.38 GiB, of 900 MiB available"
    )


def test_more_tiles_than_memory_holds_are_cut_with_a_warning() -> None:
    study = parse_study("[tiles]\nmost = 9\n")
    tile = study.tiles.tile if study.tiles else None
    assert tile is not None
    one = tile_memory(tile, "tcg")
    made = make_tile_plan(study, FACTS, 3 * one + 5)
    assert (made.rules.most, count_fitting(tile, 3 * one - 1, "tcg")) == (3, 2)
    assert made.warnings[0].startswith("9 tiles are asked for, at most 3 fit: one takes 2.38 GiB")
    virtual = make_tile_plan(study, facts_with(accel="kvm"), 3 * one)
    assert virtual.rules.most == 4, "no translated code"


def test_counts_are_exact_beside_the_one_that_all_is_compared_with() -> None:
    study = parse_study("[tiles]\ncounts = [4, 2, 9]\nruns = 2\n")
    made = make_tile_plan(study, FACTS, 16 << 30)
    assert made.rules.counts == (1, 2, 4) and made.runs == 6
    assert [text[:7] for text in made.warnings[:2]] == ["9 tiles", "1 tile "]


def test_disks_that_are_reserved_must_fit_and_others_may_grow() -> None:
    tight = facts_with(
        backings={"directory": replace(FACTS.backings["directory"], free_bytes=4 << 30)}
    )
    made = make_tile_plan(parse_study("[tiles]\nmost = 2\n"), tight)
    assert made.needed_bytes == 16 << 30
    assert "the disks of 2 tiles can grow to 16 GiB, and 4 GiB are free" in made.warnings[-1]
    with pytest.raises(HostError, match="do not fit on /images"):
        make_tile_plan(parse_study('[factors]\npreallocation = "full"\n[tiles]\n'), tight)


def test_time_grows_with_tiles_emulation_and_size() -> None:
    study = parse_study("[tiles]\n")
    made = make_tile_plan(study, FACTS)
    (cell,) = made.cells
    slow = [run_seconds(cell, made.rules, tiles, 2) for tiles in (1, 2, 3)]
    assert slow == sorted(slow) and slow[0] < slow[2]
    small = make_tile_plan(parse_study('[tiles]\nscale = "1/200"\n'), FACTS)
    assert run_seconds(cell, small.rules, 1, 2) < slow[0]
    assert made.seconds > sum(slow)
    fast = make_tile_plan(study, facts_with(accel="kvm"))
    assert fast.seconds < made.seconds
    assert any("TCG" in text for text in made.warnings)
    assert not any("TCG" in text for text in fast.warnings)


def test_every_role_and_load_has_an_expected_time() -> None:
    assert set(SETUP_SECONDS) == set(ROLES) and {*LOAD_SECONDS, COMMAND} == set(LOADS)


def test_what_the_disks_of_tiles_lie_on_is_told() -> None:
    below = replace(FACTS.backings["directory"], ground="in /images: ext4 on sda (disk)")
    made = make_tile_plan(parse_study(""), facts_with(backings={"directory": below}))
    assert find_grounds(made.warnings) == (Ground("directory", below.ground),)
