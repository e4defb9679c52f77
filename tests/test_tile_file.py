"""A tile's file: what it means, and every mistake with its line."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diskproof.errors import StudyError
from diskproof.study.load import parse_study
from diskproof.study.tile_file import MAX_GUESTS, MAX_TEXT, built_in_tile, load_tile, parse_tile
from diskproof.study.tiles import LOADS, ROLES, TileRules
from support.toml_text import render_toml

MIB = 1 << 20
OWN = """\
description = "two that write"

[guests.writer]
memory = "256MiB"
vcpus = 2

[guests.files-b]
role = "file-server"
disk = "64MiB"

[workloads.write]
from = "writer"
command = ["dd", "if=/dev/zero", "of=/mnt/x"]
check = ["test", "-s", "/mnt/x"]
timeout = "2m"
service_level = 1.5

[workloads.fill]
load = "copy"
from = "files-b"
to = "files-c"
bytes = "1M"
after = ["write"]

[guests.files-c]
role = "file-server"
"""


def test_a_file_becomes_a_tile() -> None:
    tile = parse_tile(OWN, "folder/own.toml")
    assert tile.name == "own"
    assert [(g.name, g.role, g.memory // MIB, g.vcpus, g.disk // MIB) for g in tile.guests] == [
        ("writer", "plain", 256, 2, 1024),
        ("files-b", "file-server", 256, 1, 64),
        ("files-c", "file-server", 256, 1, 2048),
    ]
    write, fill = tile.works
    assert write.command[0] == "dd" and write.check == ("test", "-s", "/mnt/x")
    assert (write.load, write.target) == ("command", "")
    assert (write.timeout, write.service_level) == (120.0, 1.5)
    assert dict(fill.options) == {"files": "44500", "bytes": str(MIB), "depth": "5", "idle": "30"}
    assert (fill.source, fill.target, fill.after) == ("files-b", "files-c", ("write",))
    assert tile.memory == 768 * MIB


def test_the_tile_of_the_article_has_its_figures() -> None:
    tile = built_in_tile()
    roles = [guest.role for guest in tile.guests]
    assert roles == ["file-server", "file-server", "web-mail", "database"]
    loads = {work.load: dict(work.options) for work in tile.works}
    assert loads["copy"] == {
        "files": "44500",
        "bytes": str(670 * MIB),
        "depth": "5",
        "idle": "30",
    }
    assert loads["pgbench"] == {"transactions": "10000", "clients": "4"}
    assert loads["http"] == {"requests": "2000", "clients": "4"}
    assert loads["mail"] == {
        "batches": "100",
        "batch": "5",
        "interval": "1",
        "burst": "100",
        "size": str(56 << 10),
    }


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ('role = "file-server"', 'role = "fileserver"', 8, "did you mean 'file-server'"),
        ('memory = "256MiB"', 'memory = "100MiB"', 4, "not a whole number of MiB from 192 MiB"),
        ('memory = "256MiB"', 'memory = "1000000"', 4, "not a whole number of MiB"),
        ("vcpus = 2", "vcpus = 0", 5, "not a whole number from 1 to 64"),
        ("vcpus = 2", 'vcpu = "2"', 5, "vcpu"),
        ("vcpus = 2", 'root = "server"', 5, "not one of"),
        ('disk = "64MiB"', 'root = "postgres"', 9, "the role file-server needs servers"),
        ('disk = "64MiB"', 'disk = "8MiB"', 9, "from 16 MiB"),
        ('from = "writer"', 'from = "writter"', 12, "did you mean 'writer'"),
        ('from = "writer"', 'to = "writer"', 11, "from"),
        ('command = ["dd", "if=/dev/zero", "of=/mnt/x"]', "command = []", 13, "at least 1"),
        ('command = ["dd", "if=/dev/zero", "of=/mnt/x"]', "", 11, "needs a load or a command"),
        ('timeout = "2m"', 'timeout = "soon"', 15, "not a time"),
        ('timeout = "2m"', 'size = "2m"', 15, "unknown key of command"),
        ("service_level = 1.5", "service_level = 1.0", 16, "greater than 1"),
        ('load = "copy"', 'load = "copies"', 19, "did you mean 'copy'"),
        ('load = "copy"', 'load = "copy"\ncommand = ["a"]', 18, "either a load or a command"),
        ('to = "files-c"', 'to = "files-b"', 21, "a copy goes to another guest"),
        ('to = "files-c"', 'to = "writer"', 21, "copy needs a file-server, writer is plain"),
        ('to = "files-c"', "", 18, "unknown guest"),
        ('bytes = "1M"', 'bytes = "much"', 22, "bytes"),
        ('bytes = "1M"', "depth = 99", 22, "1 to 32 levels"),
        ('bytes = "1M"', 'byte = "1M"', 22, "did you mean 'bytes'"),
        ('bytes = "1M"', 'check = ["true"]', 22, "copy checks its own result"),
        ('after = ["write"]', 'after = ["rite"]', 23, "did you mean 'write'"),
        ('after = ["write"]', 'after = ["fill"]', 23, "waits for fill for ever"),
        ("[guests.files-c]", "[guests.Files-C]", 25, "not a guest's name"),
        ("description", "descripton", 1, "descripton"),
        ("[guests.writer]", "[guests.writer", 3, "TOML"),
    ],
)
def test_a_mistake_has_its_line(before: str, after: str, line: int, told: str) -> None:
    assert OWN.count(before) >= 1
    with pytest.raises(StudyError) as caught:
        parse_tile(OWN.replace(before, after, 1), "own.toml")
    first = str(caught.value).splitlines()
    matching = [text for text in first if told in text]
    assert matching, first
    assert told == "TOML" or matching[0].startswith(f"own.toml:{line}: "), matching


def test_all_mistakes_are_told_at_once() -> None:
    wrong = OWN.replace("vcpus = 2", 'vcpu = "2"').replace('"2m"', '"soon"')
    with pytest.raises(StudyError) as caught:
        parse_tile(wrong, "own.toml")
    places = [text.split(": ")[0] for text in caught.value.what.splitlines()]
    assert places == ["own.toml:5", "own.toml:15"]


def test_names_that_become_the_same_variable_are_refused() -> None:
    text = "".join(f"[guests.g{n}]\n" for n in range(MAX_GUESTS + 1))
    with pytest.raises(StudyError, match=f"1 to {MAX_GUESTS}, not {MAX_GUESTS + 1}"):
        parse_tile(f'{text}[workloads.w]\nfrom = "g1"\ncommand = ["a"]\n', "own.toml")


def test_workloads_that_wait_for_each_other_are_refused() -> None:
    circle = "".join(
        f'[workloads.w{n}]\nfrom = "a"\ncommand = ["x"]\nafter = ["w{(n + 1) % 3}"]\n'
        for n in range(3)
    )
    with pytest.raises(StudyError) as caught:
        parse_tile(f"[guests.a]\n{circle}", "own.toml")
    assert "own.toml:5: w0: waits for w1 for ever" in caught.value.what


# -- the file and the study -----------------------------------------------------------------


def test_a_study_names_its_tile_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "tiles").mkdir()
    (tmp_path / "tiles" / "own.toml").write_text(OWN)
    study = parse_study('[tiles]\ntile = "tiles/own.toml"\n', folder=tmp_path)
    assert study.tiles is not None and study.tiles.tile == parse_tile(OWN, "own.toml")
    assert study.tiles == TileRules(study.tiles.tile)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "utf-8"),
        (b"#" * (MAX_TEXT + 1), "larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_says_so(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "own.toml").write_bytes(content)
    with pytest.raises(StudyError) as caught:
        load_tile("own.toml", tmp_path)
    assert told in caught.value.why and '"article"' in caught.value.hint


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('scale = "0.5"', "scale"),
        ('scale = "1/0"', "scale"),
        ("most = 0", "not a whole number from 1 to 64"),
        ("counts = []", "at least 1"),
        ("counts = [1, 65]", "65 is not a whole number from 1 to 64"),
        ("service_level = 1", "greater than 1"),
        ('ksm = ["maybe"]', "level of ksm"),
        ('share = "nsf"', "did you mean 'nfs'"),
        ('network = "lan"', "network"),
        ("mots = 3", "did you mean 'most'"),
    ],
)
def test_mistakes_of_the_studys_table_have_their_line(line: str, told: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(f'name = "x"\n[tiles]\n{line}\n')
    assert caught.value.what.startswith("study.toml:3: ") and told in caught.value.what


# -- anything at all ------------------------------------------------------------------------

_WORDS = st.sampled_from(
    ["a", "b-c", "from", "to", "load", "command", "guests", "workloads", "role", "after", "disk"]
    + [*LOADS, *ROLES, "x" * 70, "", "10.77", "🙂", "\x00"]
)
_VALUES = st.recursive(
    st.one_of(_WORDS, st.integers(-5, 1 << 70), st.floats(), st.booleans(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(_WORDS, st.dictionaries(_WORDS, _VALUES, max_size=5), max_size=3),
    st.dictionaries(_WORDS, st.dictionaries(_WORDS, _VALUES, max_size=5), max_size=3),
    st.dictionaries(_WORDS, _VALUES, max_size=2),
)
def test_any_toml_is_a_tile_or_a_mistake(
    guests: dict[str, object], works: dict[str, object], rest: dict[str, object]
) -> None:
    content = rest | {"guests": guests, "workloads": works}
    text = "\n".join(f"{render_toml(key)} = {render_toml(each)}" for key, each in content.items())
    try:
        tile = parse_tile(text, "own.toml")
    except StudyError as error:
        assert error.what.startswith("own.toml")
    else:
        assert tile.guests and tile.works


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
@example("a" * 5000 + "=1")
@example("x = " + "[" * 5000)
def test_any_text_is_a_tile_or_a_mistake(text: str) -> None:
    with pytest.raises(StudyError):
        parse_tile(text, "own.toml")
