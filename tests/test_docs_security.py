"""docs/security.md names the test that proves each line, and they are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:tests|native)/[\w./]+\.(?:py|rs))(?:::(\w+))?`", PAGE)))


def table(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: Path(part).name)
def test_what_proves_a_line_is_there(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    if name:
        keyword = "def" if file.endswith(".py") else "fn"
        assert re.search(rf"^\s*{keyword} {name}\(", text, re.MULTILINE)


def test_every_line_has_its_proof() -> None:
    attacks = table("What strangers can and cannot reach")
    readers = table("Readers of foreign bytes")
    assert len(attacks) > 30 and len(readers) > 25
    for row in attacks:
        assert len(row) == 4 and (row[3].count("::") or "cannot be kept from" in row[1]), row
    for row in readers:
        assert "::" in row[2] or "test_damaged_inputs" in row[2], row


FUZZED = re.compile(r'fn (\w+)\(\) \{(?:(?!\bfn ).)*?bolero::check!\(name = "([\w-]+)"\)', re.S)


def test_every_fuzz_target_is_named_and_has_its_corpus() -> None:
    found = {
        name: (source, function)
        for source in (ROOT / "native").glob("*/*/*/**/*.rs")
        for function, name in FUZZED.findall(source.read_text())
    }
    assert len(found) > 18 and "log" in found
    for name, (source, function) in found.items():
        assert f"`{source.relative_to(ROOT)}::{function}`" in PAGE, name
        assert any((source.parent / "__fuzz__" / name / "corpus").iterdir()), name
