"""The golden ledger, built anew from its text by another program than the one that reads disks."""

import json
from pathlib import Path
from typing import Any

from support.ledgers import SECTOR, SLOT, Geometry, encode

GOLDEN = Path(__file__).parent / "golden"


def build(text: dict[str, Any]) -> bytes:
    """The bytes that the text describes: see ``places`` there."""
    named = text["geometry"]
    seed = int(named["seed"], 16)
    ledger = Geometry(int(named["id"], 16), named["offset"], named["slots"], seed)
    disk = bytearray(ledger.offset + ledger.slots * SLOT)
    disk[:17] = b"not the ledger's\n"

    def record(sequence: int) -> bytes:
        times = text["times"]
        later = sequence * times["step_ns"]
        return encode(ledger, sequence, times["monotonic_ns"] + later, times["realtime_ns"] + later)

    for promised, what in text["places"].items():
        owners = what if isinstance(what, list) else [what] * (SLOT // SECTOR)
        start = ledger.offset + ledger.slot_of(int(promised)) * SLOT
        for number, owner in enumerate(owners):
            if owner is not None:
                sector = record(owner)[number * SECTOR : (number + 1) * SECTOR]
                disk[start + number * SECTOR : start + (number + 1) * SECTOR] = sector
    return bytes(disk)


def test_the_golden_ledger_is_what_its_text_describes() -> None:
    text = json.loads((GOLDEN / "ledger.json").read_text())
    assert build(text) == (GOLDEN / "ledger.bin").read_bytes()
