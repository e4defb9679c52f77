"""Fresh Debian systems without compilers, into which we are installed as a stranger would."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.install_systems import BROUGHT, SUITES, USER, Person, System, start_root

PEOPLE = [(suite, user) for suite in SUITES for user in (USER, 0)]
"""Root comes last on each system, to take away what all were given."""


@pytest.fixture(scope="session")
def systems() -> Iterator[dict[str, System]]:
    """Those that are there; each begins with its first person."""
    with ExitStack() as stack:
        yield _Systems(stack)


class _Systems(dict[str, System]):
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __missing__(self, suite: str) -> System:
        folder = tempfile.TemporaryDirectory(prefix="diskproof-install-", dir="/var/tmp")
        path = Path(self._stack.enter_context(folder))
        options = f"--include={','.join(BROUGHT)}"
        root = self._stack.enter_context(start_root(suite, path, options))
        home = root / "home" / "user"
        home.mkdir()
        os.chown(home, USER, USER)
        self[suite] = System(suite, root)
        return self[suite]


@pytest.fixture(scope="session", params=PEOPLE, ids=lambda each: f"{each[0]}-{each[1]}")
def person(request: pytest.FixtureRequest, systems: dict[str, System]) -> Person:
    suite, user = request.param
    return Person(systems[suite], user)
