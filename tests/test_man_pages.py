"""Man pages: as mandoc wants them, and with all that --help tells."""

import re
import subprocess
from pathlib import Path

import pytest

from diskproof.cli.tool_verbs import find_options, read_help
from diskproof.process import start as proc
from help_text import TOOLS, parse_help
from man_pages import write_pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    written = write_pages(tmp_path_factory.mktemp("man"))
    return {path.stem: path for path in written}


def test_mandoc_finds_nothing(pages: dict[str, Path]) -> None:
    assert set(pages) == {"diskproof", *TOOLS}
    argv = ["mandoc", "-Tlint", "-Wwarning", *map(str, pages.values())]
    done = proc.run(argv, timeout=60, check=False)
    assert (done.returncode, done.text) == (0, "")


def test_every_verb_is_there(pages: dict[str, Path]) -> None:
    text = read(pages["diskproof"])
    for words in ("run", "crash", "advise", "sync drop", "guest build", "monitor"):
        assert re.search(rf"^ +diskproof {words}\b", text, re.MULTILINE), words
    assert "--store URL" in text


@pytest.mark.parametrize("tool", TOOLS)
def test_every_option_of_a_tool_is_there(pages: dict[str, Path], tool: str) -> None:
    text = read(pages[tool])
    options = find_options(read_help(tool))
    assert options
    assert [each for each in options if each not in text] == []


def read(page: Path) -> str:
    """What a reader sees, in plain letters."""
    shown = subprocess.run(
        ["mandoc", "-Tascii", page], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    return re.sub(".\b", "", shown)


def test_a_help_text_is_taken_apart() -> None:
    told = parse_help(
        "Does a thing. Slowly.\n\nMore of it.\n\nUsage: x [OPTIONS] <COMMAND>...\n\n"
        "Options:\n  -a, --after <N>\n          From the Nth on\n\n"
        "          Possible values:\n          - one: The first\n\n  -q  Quiet\n\n"
        "Exit code: the command's own;\n2 wrong usage.\n",
        "x",
    )
    assert (told.what, told.more, told.usage) == (
        "Does a thing",
        ("Slowly.", "More of it."),
        ("[OPTIONS] <COMMAND>...",),
    )
    options, ends = told.sections
    assert [row.name for row in options.rows] == ["-a, --after <N>", "-q"]
    assert options.rows[0].told == ("From the Nth on", "Possible values:", "- one: The first")
    assert ends.text == "the command's own; 2 wrong usage."
    with pytest.raises(ValueError, match="no usage"):
        parse_help("nothing\n", "x")
