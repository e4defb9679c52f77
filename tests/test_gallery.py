"""The recipes of programs: each can be read, and stands for itself."""

import os
from pathlib import Path

import pytest

from diskproof.crash import gallery
from diskproof.errors import HostError, UsageError
from diskproof.process.start import run


@pytest.mark.parametrize("name", gallery.read_gallery())
def test_a_recipe_is_whole(name: str) -> None:
    found = gallery.find_application(name)
    assert found.name == name
    assert found.title and found.promise and found.source and found.version and found.packages
    assert not found.promise.endswith(".") and not found.source.endswith(".")
    for command in (found.writer, found.check):
        scripts = [word for word in command if word.startswith(str(gallery.RECIPES))]
        assert scripts and all(map(os.path.isfile, scripts))


def test_every_script_belongs_to_a_recipe() -> None:
    used = {
        word
        for each in gallery.read_gallery().values()
        for command in (each.writer, each.check, each.prepare)
        for word in command
    }
    scripts = [each for each in gallery.RECIPES.glob("*/*") if each.suffix != ".toml"]
    for script in scripts:
        beside = [each.read_text() for each in scripts if each.parent == script.parent]
        assert str(script) in used or any(script.name in text for text in beside), script


def test_a_wrong_name_is_told_with_the_next_one() -> None:
    with pytest.raises(UsageError, match="did you mean rename"):
        gallery.find_application("renam")


@pytest.mark.parametrize("row", ["needs = ['/nowhere']", "version = ['false']"])
def test_what_is_not_here_is_told_with_the_command_that_brings_it(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").mkdir()
    head = {"needs": "needs = ['true']", "version": "version = ['true']"}
    head[row.partition(" ")[0]] = row
    texts = "\n".join(f"{key} = '{key} of x'" for key in ("title", "promise", "source"))
    text = "\n".join(["packages = ['x-tools']", *head.values(), "[x]", texts])
    (tmp_path / "x" / "applications.toml").write_text(f"{text}\nwriter = ['w']\ncheck = ['c']\n")
    monkeypatch.setattr(gallery, "RECIPES", tmp_path)
    gallery.read_gallery.cache_clear()
    try:
        with pytest.raises(HostError) as caught:
            gallery.ask_version(gallery.find_application("x"))
        (found,) = gallery.gallery_json()
    finally:
        gallery.read_gallery.cache_clear()
    assert caught.value.hint == found["missing"] == "apt-get install x-tools"
    assert found["version"] is None


@pytest.mark.parametrize("name", gallery.read_gallery())
def test_a_program_that_is_here_tells_its_version(name: str) -> None:
    """Or says what brings it: a recipe whose own command is wrong does neither."""
    found = gallery.find_application(name)
    here = run(["dpkg-query", "--status", *found.packages], timeout=20, check=False)
    if here.returncode != 0:
        pytest.skip(f"{found.packages} are not installed")
    assert any(letter.isdigit() for letter in gallery.ask_version(found))
