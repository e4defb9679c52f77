"""Recipes of real programs: what writes, what it promises, what judges a crash of it.

One folder a program in ``applications/``: an ``applications.toml`` with a table for each way of
using it, and its scripts (CONTRIBUTING.md).
"""

import difflib
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from diskproof.errors import HostError, RunFailure, UsageError
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import find_tool, run

RECIPES = Path(__file__).parent / "applications"
_FILE = "applications.toml"
_PYTHON = "/usr/bin/python3"
"""Debian's, for which its packages are."""
_VERSION_SECONDS = 20.0
_PREPARE_SECONDS = 120.0


@dataclass(frozen=True)
class Application:
    """A program and a way of using it. ``promise`` is what a line of its writer means, ``source``
    who says so; ``prepare`` (or nothing) runs in the new folder that the writer starts with;
    ``version`` prints a line; ``needs`` are programs, ``modules`` those of Debian's Python, and
    ``packages`` Debian's that bring all."""

    name: str
    title: str
    promise: str
    source: str
    writer: tuple[str, ...]
    check: tuple[str, ...]
    prepare: tuple[str, ...]
    version: tuple[str, ...]
    needs: tuple[str, ...]
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    folder: Path
    """Where its scripts are."""
    not_in_guest: str
    """Why it cannot be tried in our guest, or nothing."""

    def in_guest(self, words: Sequence[str]) -> str:
        """A command of the recipe for a guest that has its scripts in the folder that it runs
        in."""
        here = {str(each): f"./{each.name}" for each in self.folder.iterdir()}
        return shlex.join(here.get(word, word) for word in words)


class ApplicationJson(TypedDict):
    """A row of ``crash apps --json``; ``missing`` is the command that brings what is not here."""

    name: str
    title: str
    promise: str
    source: str
    version: str | None
    packages: list[str]
    missing: str


@cache
def read_gallery() -> Mapping[str, Application]:
    """All recipes, by name."""
    found = (each for file in sorted(RECIPES.glob(f"*/{_FILE}")) for each in _read_recipes(file))
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def _read_recipes(file: Path) -> Iterator[Application]:
    content = tomllib.loads(file.read_text())
    for name, row in content.items():
        if isinstance(row, dict):
            texts = {key: row[key] for key in ("title", "promise", "source")}
            commands = {key: row.get(key, ()) for key in ("writer", "check", "prepare")}
            commands["version"] = content["version"]
            located = {key: _located(words, file) for key, words in commands.items()}
            lists = {key: tuple(content.get(key, ())) for key in ("needs", "modules", "packages")}
            apart = content.get("not_in_guest", "")
            parts = {**texts, **located, **lists}
            yield Application(name, **parts, folder=file.parent, not_in_guest=apart)


def _located(words: Sequence[str], file: Path) -> tuple[str, ...]:
    """Words that name a file beside the recipe say where it is."""
    beside = {each.name: str(each) for each in file.parent.iterdir()}
    return tuple(beside.get(word, word) for word in words)


def find_application(name: str) -> Application:
    """Raises UsageError."""
    gallery = read_gallery()
    if name not in gallery:
        close = difflib.get_close_matches(name, gallery, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        what = f"--app {name}: no recipe has that name"
        raise UsageError(what, "", f"{hint}`diskproof crash apps` lists them")
    return gallery[name]


def require_in_guest(application: Application) -> None:
    """Raises UsageError for one that our guest cannot have."""
    if why := application.not_in_guest:
        hint = "without --in-guest, with --on, it runs on a file system of this host"
        raise UsageError(f"{application.name} cannot be tried in our guest", why, hint)


def ask_version(application: Application) -> str:
    """What the program calls itself. Raises HostError where it is not here."""
    if all(map(find_tool, application.needs)) and _can_import(application.modules):
        answer = run(application.version, timeout=_VERSION_SECONDS, check=False)
        if answer.returncode == 0:
            return answer.text.partition("\n")[0].strip()[:100]
    what = f"{application.title} is not installed"
    raise HostError(what, "", f"apt-get install {' '.join(application.packages)}")


def _can_import(modules: Sequence[str]) -> bool:
    trial = "\n".join(f"import {module}" for module in modules)
    argv = [_PYTHON, "-c", trial]
    return not modules or run(argv, timeout=_VERSION_SECONDS, check=False).returncode == 0


@contextmanager
def start_prepared(application: Application) -> Iterator[Path]:
    """The folder that the program starts with, which lasts as long as the block."""
    with start_scratch_dir(large=True) as room:
        folder = room / application.name
        folder.mkdir()
        if application.prepare:
            try:
                run(application.prepare, timeout=_PREPARE_SECONDS, cwd=folder)
            except RunFailure as error:
                raise HostError(f"{application.name} cannot be prepared here", str(error)) from None
        yield folder


def gallery_json() -> list[ApplicationJson]:
    """What can be tried, and what of it is here."""
    return [_application_json(each) for each in read_gallery().values()]


def _application_json(application: Application) -> ApplicationJson:
    version, missing = None, ""
    try:
        version = ask_version(application)
    except HostError as error:
        missing = error.hint
    return {
        "name": application.name,
        "title": application.title,
        "promise": application.promise,
        "source": application.source,
        "version": version,
        "packages": list(application.packages),
        "missing": missing,
    }
