"""Nova's words for disks, both ways, and what a nova.conf decides."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.advice import nova, nova_hosts
from diskproof.advice.dialect import Target
from diskproof.advice.nova import DIALECT
from diskproof.advice.nova_conf import read_flag, read_sections
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import MachineDisk
from diskproof.study.factors import CACHE_MODES, DIRECT, FACTOR_BY_NAME
from support.machine_fixtures import MACHINES, read_fixture

FACTORS = ("cache", "aio", "discard", "iothread", "bus", "format", "preallocation")
CELLS = [
    dict(zip(FACTORS, levels, strict=True)) | {"detect-zeroes": "off"}
    for levels in itertools.product(*(FACTOR_BY_NAME[name].levels for name in FACTORS))
]
TARGETS = {
    "file": Target(image="/var/lib/nova/instances/x/disk"),
    "block": Target(image="/dev/nova/x_disk", block=True),
    "network": Target(image="rbd:vms/x_disk"),
}
UNSAID = {"file": (), "block": ("format", "preallocation"),
          "network": ("format", "preallocation", "aio")}  # fmt: skip
REACHABLE = {"file": (5 + 3 + 2) * 2 * 4 * 2, "block": (5 + 2) * 2 * 4, "network": 5 * 2 * 4}
"""By 2 discards and 4 buses. File, by 2 formats: 5 caches with threads; where the space is reserved
3 with threads, 2 with native. Block: 5 caches with threads, 2 with native."""


@pytest.mark.parametrize("kind", TARGETS)
def test_every_reachable_cell_comes_back_from_its_lines(kind: str) -> None:
    target, seen = TARGETS[kind], 0
    for cell in CELLS:
        if obstacles := DIALECT.find_obstacles(cell, target):
            with pytest.raises(ValueError, match=obstacles[0].factor):
                DIALECT.write(cell, target)
            nearest = {**cell, **{item.factor: item.nearest for item in obstacles}}
            if DIALECT.find_obstacles(nearest, target):  # native, now that space is reserved or not
                (other,) = DIALECT.find_obstacles(nearest, target)
                nearest[other.factor] = other.nearest
            assert not DIALECT.find_obstacles(nearest, target), (cell, nearest)
            continue
        said = {factor: level for factor, level in cell.items() if factor not in UNSAID[kind]}
        assert DIALECT.read(DIALECT.write(cell, target).text, target) == said
        seen += 1
    assert seen == REACHABLE[kind]


@settings(max_examples=60)
@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), st.text(
        st.characters(min_codepoint=32, max_codepoint=126), max_size=9), max_size=4),
    st.sampled_from(sorted(CACHE_MODES)), st.sampled_from(sorted(TARGETS)),
)  # fmt: skip
def test_what_else_stood_in_the_part_stays(others: dict[str, str], cache: str, kind: str) -> None:
    existing = "[libvirt]\ndisk_cachemodes = mount=none\n" + "".join(
        f"x_{key} = {value}\n" for key, value in others.items()
    )
    target = Target(TARGETS[kind].image, TARGETS[kind].block, existing=existing)
    before = read_sections(existing, "x")["libvirt"]
    after = read_sections(DIALECT.write({"cache": cache}, target).text, "x")["libvirt"]
    assert after == before | {"disk_cachemodes": f"mount=none,{kind}={cache}"}


@pytest.mark.parametrize("kind", TARGETS)
def test_the_defaults_of_nova_can_be_said(kind: str) -> None:
    levels = DIALECT.defaults(TARGETS[kind])
    assert not DIALECT.find_obstacles(levels, TARGETS[kind])


def test_gotcha_1_nova_falls_back_to_threads_without_direct_io() -> None:
    block = TARGETS["block"]
    for cache in CACHE_MODES:
        obstacles = DIALECT.find_obstacles({"cache": cache, "aio": "native"}, block)
        assert [item.nearest for item in obstacles] == ([] if cache in DIRECT else ["threads"])
        text = f"[libvirt]\ndisk_cachemodes = block={cache}\n{nova.VOLUME_AIO} = false\n"
        assert nova.read(text, block)["aio"] == ("native" if cache in DIRECT else "threads")
    found = find_disk("compute-unsafe.conf", "block").configured
    assert found is not None and found.levels["aio"] == "threads"


def test_gotcha_7_page_cache_and_migration() -> None:
    for cache, mode in CACHE_MODES.items():
        for kind, target in TARGETS.items():
            notes = DIALECT.write({"cache": cache}, target).notes
            told = any("live migration" in note for note in notes)
            assert told == (not mode.direct and kind != "network")


def test_gotcha_10_the_cache_of_rbd_is_librbds() -> None:
    for cache in CACHE_MODES:
        paste = DIALECT.write({"cache": cache}, TARGETS["network"])
        assert any("librbd's own cache" in note for note in paste.notes)
        assert not any(
            "librbd" in n for n in DIALECT.write({"cache": cache}, TARGETS["file"]).notes
        )
    assert DIALECT.find_obstacles({"aio": "native"}, TARGETS["network"])
    disk = find_disk("compute-rbd.conf", "network")
    assert (disk.kind, disk.image, disk.facts["driver"]) == ("network", "rbd:vms", "rbd")


def find_disk(file: str, name: str) -> MachineDisk:
    (machine,) = read_fixture(nova_hosts.READING, "nova", file)
    return next(disk for disk in machine.disks if disk.name == name)


def test_a_cache_that_nova_chooses_is_unknown() -> None:
    disk = find_disk("compute-default.conf", "file")
    assert disk.configured is not None and "cache" not in disk.configured.levels
    (remark,) = disk.remarks
    assert remark.effect == "unknown" and remark.change is not None
    assert remark.change.text == "[libvirt]\ndisk_cachemodes = file=none\n"


def test_an_entry_that_is_no_mode_is_ignored_as_nova_does() -> None:
    (machine,) = read_fixture(nova_hosts.READING, "nova", "compute-misspelt.conf")
    assert [remark.rule for remark in machine.disks[0].remarks] == [
        "setting-ignored",
        "cache-chosen-silently",
    ]
    assert any("'volume'" in note for note in machine.notes)


def test_a_policy_keeps_no_password() -> None:
    for file in (MACHINES / "nova").glob("*.conf"):
        (machine,) = read_fixture(nova_hosts.READING, "nova", file.name)
        assert "s3cret" not in repr(machine) and "password" not in repr(machine)
        assert "an instance has what it was started with" in machine.notes[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [("[libvirt\n", 1), ("a = b\n", 1), ("[x]\n  goes on\n", 2), ("[x]\nno value\n", 2),
     ("[x]\n= b\n", 2), ("[]\n", 1)],
)  # fmt: skip
def test_what_breaks_the_rules_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(UsageError, match=f"^nova.conf:{line}:"):
        nova_hosts.read_machines(text, "nova.conf")


def test_values_as_oslo_config_takes_them() -> None:
    text = "[LibVirt]\na = 'x'\nb: y = z\na = \"two\n words\"\n# c = 1\n; d = 1\ne =\n"
    assert read_sections(text, "x") == {"libvirt": {"a": '"two\nwords"', "b": "y = z", "e": ""}}
    assert [read_flag(word, True) for word in ("no", "ON", "?", "")] == [False, True, True, True]
    with pytest.raises(UsageError, match="too large"):
        read_sections("#" * (5 << 20), "x")


@given(st.text(alphabet="[]libvrt=:\n #;\t'\"\r\x00é", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        nova_hosts.read_machines("[libvirt]\n" + text, "x")
    except UsageError as error:
        assert str(error).startswith("x:")
