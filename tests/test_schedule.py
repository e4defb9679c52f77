"""Randomised complete blocks."""

from hypothesis import given
from hypothesis import strategies as st

from diskproof.plan.schedule import make_schedule
from diskproof.records import Cell, WorkloadSpec


def cells(count: int) -> list[Cell]:
    return [Cell((("cache", str(i)),), WorkloadSpec("w", "fio")) for i in range(count)]


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**31))
def test_every_block_holds_every_cell_once(count: int, blocks: int, seed: int) -> None:
    made = make_schedule(cells(count), blocks, seed)
    ids = sorted(cell.id for cell in cells(count))
    for block in range(blocks):
        runs = [run for run in made if run.block == block]
        assert [run.position for run in runs] == list(range(count))
        assert sorted(run.cell.id for run in runs) == ids
    assert [run.block for run in made] == sorted(run.block for run in made)


@given(st.integers(2, 12), st.integers(0, 2**31), st.randoms())
def test_order_ignores_the_order_of_the_file_and_survives_more_blocks(
    count: int, seed: int, shuffler: object
) -> None:
    mixed = cells(count)
    shuffler.shuffle(mixed)  # type: ignore[attr-defined]
    assert make_schedule(mixed, 2, seed) == make_schedule(cells(count), 5, seed)[: 2 * count]


def test_blocks_and_seeds_have_orders_of_their_own() -> None:
    runs = make_schedule(cells(30), 2, 7)
    orders = [[r.cell.id for r in runs if r.block == block] for block in (0, 1)]
    assert orders[0] != orders[1]
    assert orders[0] != [r.cell.id for r in make_schedule(cells(30), 1, 8)]


def test_the_order_is_the_same_on_every_machine_and_python() -> None:
    order = [dict(run.cell.levels)["cache"] for run in make_schedule(cells(8), 1, 1)]
    assert order == ["0", "1", "5", "6", "2", "4", "7", "3"]
