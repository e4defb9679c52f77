"""The chapters of the page in their order: to add one, add its row."""

from __future__ import annotations

from typing import Any

from diskproof.report.chapter import Chapter
from diskproof.report.crash import page as crash_page
from diskproof.report.details import page as detail_page
from diskproof.report.factors import page as factor_page
from diskproof.report.protocols import page as protocol_page
from diskproof.report.race import page as race_page
from diskproof.report.ranking import page as ranking_page
from diskproof.report.runs import page as run_page
from diskproof.report.scores import page as score_page
from diskproof.report.stability import page as stability_page
from diskproof.report.tiles import page as tile_page

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
