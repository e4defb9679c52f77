"""The chapters of the page in their order: to add one, add its row."""

from __future__ import annotations

from typing import Any

from diskproof.report import (
    crash_page,
    detail_page,
    factor_page,
    protocol_page,
    race_page,
    ranking_page,
    run_page,
    score_page,
    stability_page,
    tile_page,
)
from diskproof.report.chapter import Chapter

CHAPTERS: tuple[Chapter[Any], ...] = (
    tile_page.CHAPTER,
    score_page.CHAPTER,
    ranking_page.CHAPTER,
    race_page.CHAPTER,
    protocol_page.CHAPTER,
    factor_page.CHAPTER,
    stability_page.CHAPTER,
    detail_page.CHAPTER,
    crash_page.CHAPTER,
    run_page.CHAPTER,
)
