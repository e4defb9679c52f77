"""Configurations of virtual machines with what is to be said of them (``expected.toml``)."""

import tomllib
from pathlib import Path

from diskproof.advice.dialect import Reading
from diskproof.records.virtual_machines import Machine

MACHINES = Path(__file__).parent.parent / "fixtures" / "machines"


def read_fixture(reading: Reading, folder: str, file: str) -> tuple[Machine, ...]:
    """The machines of one file, which its reading has to claim."""
    text = (MACHINES / folder / file).read_text()
    assert reading.claims(text[: 64 << 10]), file
    return reading.read_machines(text, file)


def read_expected(folder: str) -> dict[str, dict[str, list[str]]]:
    """File -> disk -> what is to be said of it."""
    expected = tomllib.loads((MACHINES / folder / "expected.toml").read_text())
    files = {path.name for path in (MACHINES / folder).iterdir()} - {"expected.toml"}
    assert set(expected) == files
    return expected
