"""The ledger of docs/ledger.md in Python, from the page: the other half of the golden file."""

import math
import struct
import zlib
from dataclasses import dataclass

SLOT, SECTOR = 4096, 512
_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


def mix(number: int) -> int:
    """SplitMix64's finaliser after one step."""
    z = (number + _STEP) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


@dataclass(frozen=True)
class Geometry:
    id: int
    offset: int
    slots: int
    seed: int

    def slot_of(self, sequence: int) -> int:
        turn = (sequence - 1) % self.slots
        if self.seed == 0:
            return turn
        start, step = mix(self.seed) % self.slots, mix(self.seed ^ 0x535452494445) % self.slots
        while math.gcd(step, self.slots) != 1:
            step = (step + 1) % self.slots
        return (turn * step + start) % self.slots


def payload(ledger: int, sequence: int, sector: int, length: int) -> bytes:
    state = mix(mix(ledger) ^ mix((sequence * 8 + sector) & _MASK))
    words = []
    for _ in range(length // 8):
        state = (state + _STEP) & _MASK
        words.append(mix(state))
    return struct.pack(f"<{len(words)}Q", *words)


def encode(ledger: Geometry, sequence: int, monotonic_ns: int, realtime_ns: int) -> bytes:
    """One record, 4096 bytes."""
    slot = ledger.slot_of(sequence)
    fields = (ledger.id, sequence, slot, ledger.slots, ledger.seed, monotonic_ns, realtime_ns)
    head = struct.pack("<7Q", *fields)
    body = head + payload(ledger.id, sequence, 0, SECTOR - 72)
    for sector in range(1, SLOT // SECTOR):
        body += struct.pack("<2Q", ledger.id, sequence)
        body += payload(ledger.id, sequence, sector, SECTOR - 16)
    start = struct.pack("<8sI", b"dpledge\n", 1)
    return start + struct.pack("<I", zlib.crc32(body, zlib.crc32(start))) + body
