"""``like`` in a study: what is read, what is a mistake, and the sentence that is stored of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import StudyError
from diskproof.records import Cell, WorkloadSpec
from diskproof.study.factors import FACTOR_BY_NAME
from diskproof.study.like import MANAGERS, DiskDefault, find_default, keep_warnings, named
from diskproof.study.load import parse_study

LOAD = WorkloadSpec("w", "fio")
PROXMOX = DiskDefault(
    "proxmox",
    "9",
    "ssd",
    (("cache", "none"), ("aio", "io_uring"), ("iothread", "on"), ("bus", "virtio-scsi")),
    "qemu-server 9.0 (PVE/QemuServer/Drive.pm)",
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('like = "proxmox"', ("proxmox",)),
        ('like = ["qemu", "libvirt"]', ("qemu", "libvirt")),
        ("", ()),
        (f"like = {list(MANAGERS)!r}", MANAGERS),
    ],
)
def test_one_or_some_managers_are_named(text: str, wanted: tuple[str, ...]) -> None:
    assert parse_study(text).like == wanted


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('name = "x"\nlike = "proxmx"', "study.toml:2: like: unknown manager 'proxmx'"),
        ('\n\nlike = ["qemu",\n "libvrt"]', ":4: like: unknown manager 'libvrt'"),
        ('like = ["qemu", "libvirt", "qemu"]', ":1: like: 'qemu' stands there twice"),
        ("like = []", ":1: like: it has 0 items"),
        ("like = 5", ":1: like: unknown manager '5'"),
        ("[like]\nproxmox = true", "like: "),
        ('lke = "qemu"', "did you mean 'like'?"),
        ('like = "proxmos"', "did you mean 'proxmox'"),
        (
            'like = "qemu"\n[factors]\nfrontend = ["host", "container"]',
            ":1: like: with frontend=host and container a disk has no settings that a manager",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, mistake: str) -> None:
    with pytest.raises(StudyError, match=re.escape(mistake)):
        parse_study(text)


def test_only_a_study_that_has_it_is_known_by_it() -> None:
    """Ids of stored studies stay; another manager is another study."""
    texts = ("", 'like = "qemu"', 'like = "libvirt"', 'like = ["qemu", "libvirt"]')
    ids = [parse_study(text).id for text in texts]
    assert len(set(ids)) == 4


def test_the_sentence_is_read_back() -> None:
    text = PROXMOX.sentence
    assert text == (
        "a new disk of proxmox 9 on ssd: cache=none aio=io_uring iothread=on bus=virtio-scsi "
        "(qemu-server 9.0 (PVE/QemuServer/Drive.pm))"
    )
    assert find_default(text) == PROXMOX
    assert keep_warnings([text, "guests run under TCG"]) == ["guests run under TCG"]


_LEVELS = st.lists(
    st.sampled_from([(f.name, level) for f in FACTOR_BY_NAME.values() for level in f.levels]),
    min_size=1,
    max_size=8,
)


@given(
    st.sampled_from(MANAGERS),
    st.from_regex(r"[0-9.]{0,6}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    _LEVELS,
    st.text(max_size=80),
)
def test_every_default_is_read_back(
    manager: str, version: str, backing: str, levels: list[tuple[str, str]], source: str
) -> None:
    default = DiskDefault(manager, version, backing, tuple(levels), source)
    assert find_default(default.sentence) == default


@given(st.text())
def test_any_other_sentence_is_none(text: str) -> None:
    found = find_default(text)
    assert found is None or found.sentence == text


def cell(**levels: str) -> Cell:
    return Cell(tuple(sorted({"backing": "ssd", **levels}.items())), LOAD)


@pytest.mark.parametrize(
    ("levels", "is_default"),
    [
        ({"frontend": "daemon", "cache": "none", "aio": "io_uring"}, True),
        ({"frontend": "daemon", "cache": "none", "aio": "io_uring", "iothread": "off"}, True),
        ({"frontend": "daemon", "cache": "none", "aio": "threads"}, False),
        ({"frontend": "host"}, False),
        ({"frontend": "daemon", "backing": "hdd", "cache": "none", "aio": "io_uring"}, False),
        (
            {
                "frontend": "guest",
                "cache": "none",
                "aio": "io_uring",
                "iothread": "on",
                "bus": "virtio-scsi",
                "vcpus": "4",
            },
            True,
        ),
        (
            {
                "frontend": "guest",
                "cache": "none",
                "aio": "io_uring",
                "iothread": "off",
                "bus": "virtio-scsi",
            },
            False,
        ),
    ],
)
def test_a_cell_is_a_default_when_all_that_it_has_of_it_is_so(
    levels: dict[str, str], is_default: bool
) -> None:
    plain = cell(**levels)
    (found,) = named([plain], [PROXMOX])
    assert found.names == (("proxmox 9",) if is_default else ())
    assert found == plain and found.id == plain.id and hash(found) == hash(plain)
