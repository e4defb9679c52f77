"""The waist: results go in from the lab and from foreign files, and come out for analysis."""

from diskproof.store.database import Store, open_store
from diskproof.store.rows import Progress, ResultRow, RunCounts, RunRow
from diskproof.store.write import DuplicateRun

__all__ = [
    "DuplicateRun",
    "Progress",
    "ResultRow",
    "RunCounts",
    "RunRow",
    "Store",
    "open_store",
]
