"""Places where verbs are called."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.verb_places import Place, adopted_orphans, make_place


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with adopted_orphans():
        yield make_place(tmp_path_factory.mktemp("verbs") / "template")


@pytest.fixture
def place(template: Place, tmp_path: Path) -> Place:
    """A place of a test's own."""
    return template.copy(tmp_path / "place")
