"""Names and figures short enough for a table, a chart and a phone."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from diskproof.errors import DiskproofError
from diskproof.records import Cell
from diskproof.stats.histograms import CellFigure
from diskproof.stats.intervals import Interval, runs_for
from diskproof.study.factors import FACTOR_BY_NAME, FACTORS
from diskproof.units import parse_bytes, render_latency

T = TypeVar("T")

TOO_FEW = "too few"
GOOD_SHARE = 0.25
"""The half width that is asked for where runs were too few, as a share of the mean."""

NAMING = ("frontend", "format", "cache", "aio", "bus")
"""They say what a disk is where nothing tells it from others."""
MAX_LABEL = 400
CUT = " [cut]"

_ORDER = {factor.name: place for place, factor in enumerate(FACTORS)}


def cut(text: str, most: int) -> str:
    """The text, or its beginning with a mark."""
    return text if len(text) <= most else text[:most] + CUT


def cut_all(content: object, most: int) -> object:
    """Long texts in it cut, and all that goes beyond: a row's figures are no text."""
    if isinstance(content, str):
        return cut(content, most)
    if isinstance(content, Mapping):
        texts = json.dumps(content, default=str)
        return content if len(texts) <= most else cut(texts, most)
    return content


def varying_factors(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Factors that are not the same in all cells, in the order of ``factors.FACTORS``.

    A factor that some cells lack (it means nothing to a bare-metal baseline) varies only if it
    has two levels among those that have it.
    """
    levels: dict[str, set[str]] = {}
    for cell in cells:
        for factor, level in cell.levels:
            levels.setdefault(factor, set()).add(level)
    varying = [factor for factor, found in levels.items() if len(found) > 1]
    return tuple(levels_order(varying))


def order_levels(
    cells: Sequence[Cell], bases: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Varying factors with their levels, the base level first: what ``bases`` says, else the
    first one as ``factors.FACTORS`` lists them, the smallest size or count, or the first seen."""
    ordered = {}
    for name in varying_factors(cells):
        seen = list(dict.fromkeys(cell.level(name) for cell in cells if cell.level(name)))
        levels = sorted(seen, key=lambda level: _level_place(name, level, seen))
        base = (bases or {}).get(name)
        if base in levels:
            levels = [base, *(level for level in levels if level != base)]
        ordered[name] = tuple(levels)
    return ordered


def _level_place(factor: str, level: str, seen: Sequence[str]) -> tuple[int, float]:
    known = FACTOR_BY_NAME.get(factor)
    if known is not None and level in known.levels:
        return 0, known.levels.index(level)
    if known is not None and known.kind in ("bytes", "count"):
        try:
            return 0, float(parse_bytes(level))
        except (DiskproofError, ValueError):
            pass
    return 1, seen.index(level)


def cell_label(cell: Cell, factors: Sequence[str]) -> str:
    """The levels that tell this cell from the others: ``guest qcow2 none native prealloc=full``.

    What is off is not named. Whose default for a new disk it is follows: ``(proxmox 9 default)``.
    """
    plain = cut(plain_label(cell, factors), MAX_LABEL)
    return f"{plain} ({', '.join(cell.names)} default)" if cell.names else plain


def plain_label(cell: Cell, factors: Sequence[str]) -> str:
    """The label without the names of managers, as one may type it."""
    levels = cell.levels_dict()
    parts = [_told(name, levels[name]) for name in factors if name in levels]
    return " ".join(filter(None, parts)) or _whole_label(levels, factors)


def _whole_label(levels: Mapping[str, str], factors: Sequence[str]) -> str:
    """The name of a cell whose varying settings are all off, or that has nothing to differ from."""
    off = [f"{name}={levels[name]}" for name in factors if name in levels]
    disk = [_told(name, levels[name]) for name in levels_order(levels) if name in NAMING]
    return " ".join(filter(None, off or disk)) or "one disk"


def levels_order(levels: Iterable[str]) -> list[str]:
    """Names of factors in the order of ``factors.FACTORS``."""
    return sorted(levels, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def _told(name: str, level: str) -> str:
    factor = FACTOR_BY_NAME.get(name)
    if level == (factor.silent if factor else "off"):
        return ""
    label = factor.label if factor else name
    return f"{label}={level}" if label else level


def render_figure(value: float) -> str:
    """Four digits: ``0.4567``, ``214.2``, ``9876``, ``12.35k``, ``1.235M``."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor * 0.99995:
            scale = 1e3 if suffix == "k" else factor
            return f"{_four_digits(value / scale)}{suffix}"
    return _four_digits(value)


def _four_digits(value: float) -> str:
    """Fixed notation with four significant digits, never an exponent above 1e-4."""
    text = f"{value:#.4g}".rstrip(".")
    return f"{value:.0f}" if "e+" in text else text


def render_half_width(interval: Interval) -> str:
    """The half width with the mean's suffix and decimals, so that the two read together; in words
    where it is wider than the mean."""
    if interval.half_width is None:
        return "?"
    if interval.says_nothing:
        return TOO_FEW
    mean = render_figure(interval.mean)
    suffix = mean[-1] if mean[-1].isalpha() else ""
    scale = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}[suffix]
    decimals = len(mean.rstrip("kMG").partition(".")[2])
    text = f"{interval.half_width / scale:.{decimals}f}"
    if interval.half_width > 0 and float(text) == 0:
        text = f"<{10**-decimals:.{decimals}f}"
    return text + suffix


def plus_minus(interval: Interval) -> str:
    """What stands behind a mean in a sentence: ``\u00b1 3.1``, ``(too few runs)``."""
    if interval.says_nothing:
        return f"({TOO_FEW} runs)"
    return f"\u00b1 {render_half_width(interval)}"


def too_few_text(intervals: Iterable[Interval], of: str = "block") -> str:
    """What ``too few`` says below a table, with what would do; empty where no interval is so."""
    wide = [each for each in intervals if each.says_nothing]
    if not wide:
        return ""
    needed = [runs_for(each, GOOD_SHARE) for each in wide]
    known = [each for each in needed if each is not None]
    enough = f"about {count(max(known), of)}" if len(known) == len(needed) else f"over 1,000 {of}s"
    return (
        f"{TOO_FEW}: the interval is wider than the mean, so too few runs to say; {enough} in all "
        f"would make it {100 * GOOD_SHARE:.0f} % of the mean"
    )


def render_measure(value: float, metric: str, unit: str) -> tuple[str, str]:
    """A figure and its unit as all tables have them: latencies as ``643us``, whose unit is told."""
    if is_latency(metric, unit):
        return render_short_latency(value), ""
    return render_figure(value), unit


def is_latency(metric: str, unit: str) -> bool:
    return unit == "s" and ("latency" in metric or "flush" in metric)


def render_short_latency(seconds: float | None) -> str:
    """``85us``, ``1.25ms``, or a dash where nothing was measured."""
    return "-" if seconds is None else render_latency(seconds).replace(" ", "")


def render_percentile(figure: CellFigure | None) -> tuple[str, str]:
    """A latency and its interval: ``1.2ms`` and ``1.1ms-1.4ms``; where there is none, why."""
    if figure is None or figure.value is None:
        return (figure.reason if figure else "-"), ""
    value = render_short_latency(figure.value)
    if figure.low is None or figure.high is None:
        return value, "?"
    if figure.high - figure.low > 2 * figure.value:
        return value, TOO_FEW
    return value, f"{render_short_latency(figure.low)}-{render_short_latency(figure.high)}"


def group_name(groups: Sequence[int]) -> str:
    """Groups as letters: A, AB; three in a row and more as A-C; the 27th is A2."""
    rows: list[list[int]] = []
    for group in groups:
        if rows and rows[-1][-1] == group - 1:
            rows[-1].append(group)
        else:
            rows.append([group])
    return "".join(
        f"{_letter(row[0])}-{_letter(row[-1])}" if len(row) > 2 else "".join(map(_letter, row))
        for row in rows
    )


def spell_groups(groups: Sequence[int]) -> str:
    """The same without a dash: B, C, D and F."""
    letters = [_letter(group) for group in groups]
    return " and ".join(filter(None, [", ".join(letters[:-1]), letters[-1]]))


def _letter(group: int) -> str:
    return chr(ord("A") + group % 26) + (str(group // 26 + 1) if group >= 26 else "")


def evenly(items: Sequence[T], most: int) -> tuple[T, ...]:
    """The first, the last and some between, evenly spaced; all where they are few."""
    last = len(items) - 1
    if last < most:
        return tuple(items)
    return tuple(items[round(place * last / (most - 1))] for place in range(most))


def count(number: int, thing: str) -> str:
    """``1 run``, ``1,200 runs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if abs(share) < 0.0995 else f"{100 * share:.0f} %"


def change(ratio: float) -> str:
    """A ratio as a signed change: ``+4.2 %``."""
    if not math.isfinite(ratio):
        return "?"
    return f"{'+' if ratio >= 1 else '-'}{percent(abs(ratio - 1))}"


def finite(value: float | None) -> float | None:
    """JSON has neither NaN nor infinities."""
    return value if value is not None and math.isfinite(value) else None


def interval_json(low: float | None, high: float | None) -> list[float] | None:
    """None unless both ends are finite."""
    if low is None or high is None or high == float("inf"):
        return None
    return [low, high]
