"""Records to columns and back: JSON text for small lists, compressed arrays for long ones."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence

from diskproof.errors import UsageError
from diskproof.records import Cell, Dropped, WorkloadSpec

MAX_BLOB = 256 << 20
Pairs = tuple[tuple[str, str], ...]


def pack_floats(values: Sequence[float]) -> bytes:
    """Little-endian doubles, compressed."""
    return zlib.compress(struct.pack(f"<{len(values)}d", *values))


def unpack_floats(blob: bytes) -> tuple[float, ...]:
    raw = unpack_bytes(blob)
    return struct.unpack(f"<{len(raw) // 8}d", raw[: len(raw) // 8 * 8])


def pack_counts(counts: Sequence[int]) -> bytes:
    """Little-endian unsigned 64-bit numbers, compressed."""
    return zlib.compress(struct.pack(f"<{len(counts)}Q", *counts))


def unpack_counts(blob: bytes) -> tuple[int, ...]:
    raw = unpack_bytes(blob)
    return struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])


def unpack_bytes(blob: bytes) -> bytes:
    """Decompress at most MAX_BLOB bytes: a store may come from anywhere. Raises UsageError."""
    try:
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(blob, MAX_BLOB)
    except zlib.error as error:
        raise UsageError("the store holds damaged data", f"a compressed column: {error}") from None
    if not decompressor.eof:
        raise UsageError(
            "the store holds damaged data",
            f"a compressed column ends early or is larger than {MAX_BLOB} bytes",
        )
    return content


def render_json(content: object) -> str:
    """Plain ASCII JSON (no text can break a database's encoding). Raises ValueError for NaN."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def cell_columns(cell: Cell) -> dict[str, str]:
    return {
        "id": cell.id,
        "levels": render_json(cell.levels),
        "workload": cell.workload.name,
        "kind": cell.workload.kind,
        "options": render_json(cell.workload.options),
    }


def parse_cell(levels: str, workload: str, kind: str, options: str) -> Cell:
    return Cell(parse_pairs(levels), WorkloadSpec(workload, kind, parse_pairs(options)))


def parse_pairs(text: str) -> Pairs:
    return tuple((str(key), str(value)) for key, value in json.loads(text))


def parse_phases(text: str) -> tuple[tuple[str, float], ...]:
    return tuple((str(name), float(seconds)) for name, seconds in json.loads(text))


def render_dropped(dropped: Sequence[Dropped]) -> str:
    return render_json([[each.reason, each.count, each.example] for each in dropped])


def parse_dropped(text: str) -> tuple[Dropped, ...]:
    return tuple(
        Dropped(str(reason), int(count), tuple((str(k), str(v)) for k, v in example))
        for reason, count, example in json.loads(text)
    )


def parse_texts(text: str) -> tuple[str, ...]:
    return tuple(str(each) for each in json.loads(text))


def parse_facts(text: str) -> Mapping[str, object]:
    facts: Mapping[str, object] = json.loads(text)
    return facts
