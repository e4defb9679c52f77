"""Places where verbs are called."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.forked import adopted_orphans, start_forker
from support.verb_places import Place, make_place


@pytest.fixture(autouse=True, scope="module")
def forker() -> None:
    """One for all modules, there before a place is looked at for what is left in it."""
    start_forker()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with adopted_orphans():  # what a call leaves behind is seen as a child of ours
        yield make_place(tmp_path_factory.mktemp("verbs") / "template")
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


@pytest.fixture
def place(template: Place, tmp_path: Path) -> Place:
    """A place of a test's own."""
    return template.copy(tmp_path / "place")
