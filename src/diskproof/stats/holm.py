"""Several p-values held against one level."""

from collections.abc import Sequence


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """p-values corrected together (Holm 1979): each may be held against the level itself."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for step, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(order) - step)))
        adjusted[place] = highest
    return adjusted
