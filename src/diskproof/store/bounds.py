"""The bounds that everything in a store keeps to, and how one that is broken is told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from diskproof.errors import UsageError
from diskproof.records import Artefact, Metric, Series
from diskproof.store.encoding import MAX_BLOB

MAX_NAME = 200
MAX_LEVEL = 1000
MAX_TEXT = 4 << 20
MAX_PER_RUN = 1000
MAX_ARRAY = 5_000_000
MAX_EVENTS = 10_000
MAX_NUMBER = (1 << 31) - 1


def require_artefact(artefact: Artefact) -> None:
    require_name("artefact", artefact.name)
    require_name("media type", artefact.media_type)
    too_large = len(artefact.content) > MAX_BLOB
    require(not too_large, f"artefact {artefact.name!r}", f"larger than {MAX_BLOB} bytes")


def require_metrics(metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        require_name("metric", metric.name)
        require_unit(metric.unit)
        require_finite(f"metric {metric.name!r}", [metric.value])
    names = [metric.name for metric in metrics]
    require(len(set(names)) == len(names), "metrics", "two of one run have the same name")


def require_series(series: Series) -> None:
    require_name("series", series.name)
    require_name("source of a series", series.source)
    require_unit(series.unit)
    require_parallel(f"series {series.name!r}", series.times, series.values)
    require_finite(f"series {series.name!r}", (*series.times, *series.values))


def require_parallel(what: str, first: Sequence[float], second: Sequence[float]) -> None:
    require(len(first) == len(second), what, "its two lists differ in length")
    require(len(first) <= MAX_ARRAY, what, f"more than {MAX_ARRAY} readings")


def require_name(what: str, name: str) -> None:
    """Names are short, printable and not empty; they become column heads and file names."""
    require(0 < len(name) <= MAX_NAME, what, f"must have 1 to {MAX_NAME} characters")
    require(name.isprintable(), what, f"has characters that cannot be printed: {name!r:.60}")


def require_unit(unit: str) -> None:
    require(len(unit) <= MAX_NAME and (unit.isprintable()), "unit", f"odd: {unit!r:.60}")


def require_number(what: str, number: int, largest: int = MAX_NUMBER) -> None:
    require(0 <= number <= largest, what, f"{number} is not between 0 and {largest}")


def require_finite(what: str, values: Iterable[float]) -> None:
    try:
        finite = all(map(math.isfinite, values))
    except (OverflowError, TypeError):
        finite = False
    require(finite, what, "holds a value that is not a finite number")


def require(holds: bool, what: str, why: str) -> None:
    if not holds:
        raise refusal(what, why)


def refusal(what: str, why: str) -> UsageError:
    return UsageError(f"cannot be stored: {what}", why)
