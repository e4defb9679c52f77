"""Randomised complete blocks: every block holds every cell once, in an order of its own."""

import hashlib
import random
from collections.abc import Sequence

from diskproof.records import Cell, PlannedRun


def make_schedule(cells: Sequence[Cell], blocks: int, seed: int) -> tuple[PlannedRun, ...]:
    """All runs of a study in the order they are made.

    Each block is shuffled by a generator seeded with the study's seed and the block's number, from
    the cells sorted by id: the order does not depend on the order of the study file, and more
    blocks leave the earlier ones as they were. ``random.Random(int)`` is the Mersenne Twister,
    whose sequence and ``shuffle`` Python keeps across versions.
    """
    ordered = sorted(cells, key=lambda cell: cell.id)
    return tuple(
        PlannedRun(block, position, cell)
        for block in range(blocks)
        for position, cell in enumerate(_shuffled(ordered, seed, block))
    )


def _shuffled(cells: Sequence[Cell], seed: int, block: int) -> list[Cell]:
    digest = hashlib.sha256(f"diskproof block {seed} {block}".encode()).digest()
    shuffled = list(cells)
    random.Random(int.from_bytes(digest)).shuffle(shuffled)
    return shuffled
