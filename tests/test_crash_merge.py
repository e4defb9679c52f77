"""Parts of a search are the search: whatever way it is cut, and merged in whatever order."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.crash.merge import merge_parts
from diskproof.crash.verdict import Coverage, Explored, Loss, judge

PLANNED = 500


@st.composite
def states(draw: st.DrawFn) -> list[tuple[int, Loss]]:
    """States in the order in which one search comes to them: what each holds (a key), and what it
    loses. The same key loses the same, and is older at a later cut."""
    keys = draw(st.lists(st.integers(0, 30), max_size=40))
    lost = draw(st.lists(st.sampled_from([0, 1, 1, 2, 7]), min_size=31, max_size=31))
    corrupt = draw(st.sets(st.integers(0, 30), max_size=2))
    return [
        (
            key,
            Loss(
                number,
                (number,),
                lost[key],
                float(number // 4) if lost[key] else 0.0,
                "corrupts" if key in corrupt else "loses",
                state=f"power:512:{number}:nothing",
                order=(number // 8, number, 0),
            ),
        )
        for number, key in enumerate(keys)
    ]


def search(seen: Iterable[tuple[int, Loss]], finished: bool) -> Explored:
    """What one process says of these states, as the explorer counts and ranks them."""
    found = Explored("power", 3, 0, None, True, 9, 7, 1.0)
    keys = set()
    for key, loss in seen:
        keys.add(key)
        worse = found.worst is None or loss.severity > found.worst.severity
        if (loss.lost or loss.verdict == "corrupts") and worse:
            found = replace(found, worst=loss, smallest=replace(loss, lost=1))
    total = len(keys) if finished else max(PLANNED, len(keys))
    covered = Coverage((3, 3), (9, 9)) if finished else Coverage((3, 3), (2, 9))
    found = replace(found, states_checked=len(keys), states_total=total, estimated=not finished)
    return replace(found, covered=covered)


@given(states(), st.integers(1, 6), st.booleans(), st.randoms(use_true_random=False))
def test_any_split_is_the_whole(
    seen: list[tuple[int, Loss]], of: int, finished: bool, random: st.DataObject
) -> None:
    parts = [search([s for s in seen if s[0] % of == part], finished) for part in range(of)]
    random.shuffle(parts)  # type: ignore[attr-defined]
    assert merge_parts(parts) == search(seen, finished)
    assert judge(merge_parts(parts)) == judge(search(seen, finished))


@given(states(), st.integers(2, 6), st.integers(1, 5), st.sets(st.integers(0, 5)))
def test_merged_parts_can_be_merged(
    seen: list[tuple[int, Loss]], of: int, first: int, late: set[int]
) -> None:
    """Some parts may have run out of time."""
    parts = [search([s for s in seen if s[0] % of == part], part not in late) for part in range(of)]
    first = min(first, of - 1)
    grouped = [merge_parts(parts[:first]), merge_parts(parts[first:])]
    assert merge_parts(grouped) == merge_parts(parts)
    assert merge_parts(parts).estimated == bool(late & set(range(of)))


def test_a_part_that_failed_leaves_it_undecided_unless_another_lost_something() -> None:
    kept = search([(1, Loss(1, (), 0, 0.0)), (2, Loss(2, (), 0, 0.0))], True)
    broken = replace(search([], False), states_total=None, failure="the worker is gone")
    merged = merge_parts([kept, broken])
    assert (merged.states_checked, merged.states_total) == (2, None)
    assert (judge(merged).verdict, judge(merged).reason) == ("undecided", "the worker is gone")
    lost = search([(3, Loss(3, (), 4, 1.0))], True)
    assert judge(merge_parts([kept, broken, lost])).verdict == "loses"


def test_what_is_no_part_of_the_same_search_is_refused() -> None:
    one = search([], True)
    for other in ([], [one, replace(one, seed=8)], [one, replace(one, fault="lying-device")]):
        with pytest.raises(ValueError, match="no parts of one search"):
            merge_parts(other)
