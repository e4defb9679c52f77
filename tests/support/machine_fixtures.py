"""Configurations of virtual machines, which ``tests/fixtures`` has."""

from pathlib import Path

from diskproof.advice.dialect import Reading
from diskproof.records.machines import Machine

MACHINES = Path(__file__).parent.parent / "fixtures" / "machines"


def read_fixture(reading: Reading, folder: str, file: str) -> tuple[Machine, ...]:
    """The machines of one file, which its reading has to claim."""
    text = (MACHINES / folder / file).read_text()
    assert reading.claims(text[: 64 << 10]), file
    return reading.read_machines(text, file)
