"""The word for what a guest has beyond the ordinary one: where it comes from and where it goes."""

import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.cli import run_command_line
from diskproof.errors import Exit, HostError, UsageError
from diskproof.guest.ours import build, packages, root
from diskproof.guest.ours.packages import UnknownPackage, packages_of
from diskproof.guest.ours.travel import export_guest, import_guest
from diskproof.study.guest_root import (
    MAX_PACKAGES,
    PACKAGE,
    describe_root,
    name_root,
    root_options,
    split_root,
)
from support.guest_parcels import FACTS, make_guest, manifest_of, move_to_host, parcel_of

KINDS = st.sampled_from(["", *packages.EXTRA_PACKAGES])
NAMES = st.lists(st.from_regex(PACKAGE, fullmatch=True), max_size=8)


@given(KINDS, NAMES)
def test_what_goes_in_comes_out_whatever_the_order(kind: str, names: list[str]) -> None:
    word = name_root(kind, names)
    assert word == name_root(kind, reversed(names))
    assert split_root(word) == (kind, tuple(sorted({*names})))


@given(st.text(alphabet=string.printable, max_size=30))
def test_a_word_that_was_never_made_is_refused(word: str) -> None:
    """What is taken apart is made of names that apt takes for names, and of nothing else."""
    try:
        _, listed = split_root(word)
    except ValueError:
        return
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]", name) for name in listed)


@pytest.mark.parametrize(
    "name",
    ["", "g", "Git", "git-", "git.", "-o=x", "git;rm", "git=1", "a b", "?essential", "a" * 65],
)
def test_what_is_no_name_of_a_package_is_told(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="is no name of a Debian package"):
        name_root("", ["git", name])
    assert run_command_line(["guest", "build", "--packages", f"git,{name}"]) == Exit.USAGE
    assert "is no name of a Debian package" in capsys.readouterr().err


def test_too_many_are_told() -> None:
    with pytest.raises(ValueError, match="too many"):
        name_root("", [f"package{number}" for number in range(MAX_PACKAGES + 1)])


def test_it_is_named_for_people_and_for_the_way_out() -> None:
    assert describe_root("storage:git,sqlite3") == "storage and git, sqlite3"
    assert root_options("storage:git,sqlite3") == "--with storage --packages git,sqlite3"
    assert (describe_root(":git"), root_options(":git")) == ("git", "--packages git")
    assert (describe_root("zfs"), root_options("zfs")) == ("zfs", "--with zfs")


def test_listed_packages_come_with_what_packages_count_on() -> None:
    assert {"git", "grep", "sed", "findutils", *packages.PACKAGES} <= {*packages_of(":git")}
    assert {"python3", "f2fs-tools", "git"} <= {*packages_of("storage:git")}
    assert "usr/lib/python3*" not in root.unused_of(":git")
    assert "usr/share/perl*" not in root.unused_of("storage:git")
    assert "usr/lib/python3*" in root.unused_of("")


def test_each_list_is_a_guest_of_its_own() -> None:
    words = ["", ":git", ":git,hg", "storage", "storage:git", "servers:git"]
    assert len({build.base_id("bookworm", word) for word in words}) == len(words)


@pytest.mark.parametrize(
    "said",
    [
        "Reading package lists...\nE: Unable to locate package gitt\nE: mmdebstrap failed to run",
        "E: Package 'gitt' has no installation candidate\n",
        "E: Couldn't find any package by regex 'gitt'\n",
    ],
)
def test_a_package_that_apt_does_not_know_is_named(said: str) -> None:
    with pytest.raises(UnknownPackage, match="no package gitt for the guest") as caught:
        packages.require_known(said)
    assert "apt-cache search gitt" in caught.value.hint
    packages.require_known("E: Failed to fetch http://deb.example/x  Connection refused")


def silent(done: int, total: int) -> None:
    """Nobody watches it."""


def test_a_guest_with_listed_packages_arrives_and_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_to_host(monkeypatch, tmp_path / "builder")
    listed = make_guest("storage:git,libstdc++6")
    (listed.parent / "another").mkdir()
    facts = json.dumps({**FACTS, "extra": ":git"})  # of a folder that is not named by it
    (listed.parent / "another" / "guest.json").write_text(facts)
    assert build.find_listed() == ("storage:git,libstdc++6",)
    file = tmp_path / "guest.tar.gz"
    export_guest(file, "storage:git,libstdc++6", silent)
    move_to_host(monkeypatch, tmp_path / "elsewhere", None)
    with pytest.raises(HostError, match="storage and git, libstdc\\+\\+6 is not built") as caught:
        build.require_guest("storage:git,libstdc++6")
    assert caught.value.hint == "diskproof guest build --with storage --packages git,libstdc++6"
    import_guest(file, None, silent)
    assert build.find_listed() == ("storage:git,libstdc++6",)
    assert build.require_guest("storage:git,libstdc++6").kernel.parent.name == listed.name


def test_facts_of_a_guest_with_other_packages_do_not_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move_to_host(monkeypatch, tmp_path / "builder")
    listed = make_guest(":git")
    (listed / "guest.json").write_text(json.dumps({**FACTS, "extra": "git; rm"}))
    file = tmp_path / "guest.tar.gz"
    file.write_bytes(parcel_of(listed, manifest_of(listed, ":git")))
    move_to_host(monkeypatch, tmp_path / "elsewhere", None)
    with pytest.raises(UsageError, match="is damaged"):
        import_guest(file, None, silent)
    assert build.find_listed() == ()
