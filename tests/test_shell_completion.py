"""Completion in bash, zsh and fish: what each really offers at Tab."""

import subprocess
from pathlib import Path

import pytest

from completions import write_completions
from help_text import TOOLS
from support.shells import SHELLS

OFFERS = {
    "diskproof sync ": ["drop", "trace"],
    "diskproof noc": ["nocache"],
    "diskproof monitor --js": ["--json"],
    "diskproof-nocache --strat": ["--strategy"],
    "diskproof-nocache --strategy ": ["cgroup", "files"],
    "diskproof-states expl": ["explore"],
}
"""A line as it is typed, and all that it can go on with."""
CHECKERS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.fixture(scope="module")
def usr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("usr")
    write_completions(folder)
    return folder


@pytest.mark.parametrize("shell", SHELLS)
def test_every_program_has_a_file_that_its_shell_understands(usr: Path, shell: str) -> None:
    files = sorted(path for path in usr.rglob("*") if path.is_file() and shell in str(path))
    names = {path.stem.removeprefix("_") for path in files}
    assert names == {"diskproof", *TOOLS}
    for path in files:
        subprocess.run([*CHECKERS[shell], path], check=True, timeout=60)


@pytest.mark.parametrize("line", OFFERS)
@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_offered(usr: Path, tmp_path: Path, shell: str, line: str) -> None:
    offered = SHELLS[shell](usr, tmp_path, line)
    assert sorted(filter(None, map(str.strip, offered))) == OFFERS[line]
