"""Places where verbs are called, and a browser."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.browser import Browser, start_browser
from support.forked import adopted_orphans, start_forker, stop_forker
from support.verb_places import Place, make_place


@pytest.fixture(autouse=True, scope="module")
def forker() -> Iterator[None]:
    """There before a place is looked at for what is left in it."""
    start_forker()
    yield
    stop_forker()


@pytest.fixture(scope="session")
def made_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("verbs") / "template")


@pytest.fixture(scope="module")
def template(made_place: Place) -> Iterator[Place]:
    with adopted_orphans():  # what a call leaves behind is seen as a child of ours
        yield made_place
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


@pytest.fixture
def place(template: Place, tmp_path: Path) -> Place:
    """A place of a test's own."""
    return template.copy(tmp_path / "place")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as browser:
        yield browser
