"""The chapters of the page in their order. To add one, add its folder and its row."""

from importlib import import_module
from typing import Any

from diskproof.report.chapter import Chapter

_ROWS = (
    "advice",
    "tiles",
    "crash",
    "ranking",
    "race",
    "protocols",
    "factors",
    "stability",
    "details",
    "scores",
    "runs",
)
CHAPTERS: tuple[Chapter[Any], ...] = tuple(
    import_module(f"diskproof.report.{name}.page").CHAPTER for name in _ROWS
)
