"""Curves, warm-ups and lives of caches in a real Chromium. Requires chromium (apt-get install
chromium)."""

from pathlib import Path

import pytest

from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.store import open_store
from e2e.test_page import CUT, DRAWN, OUTSIDE, UNFOLD
from support.browser import Browser, find_chromium
from support.protocol_stores import PARTS, fill_protocols
from support.report_views import HOSTILE

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs chromium")
TITLES = ("First write against rewrite", "Warming up", "What a cache outlives")
# The charts that stand between a title and its table.
CHARTS = """[...[...document.querySelectorAll("h3")].find((each) => each.textContent === TITLE)
  .nextElementSibling.nextElementSibling.querySelectorAll("figure")]"""
LINES = f"""{CHARTS}.map((figure) => [".mark-line path", ".mark-area path", ".mark-symbol path"]
  .map((kind) => figure.querySelectorAll(".live .role-mark" + kind)
    .length))"""
SHARES = f"{CHARTS}.map((figure) => figure.querySelectorAll('.live .mark-rect path').length)"
HEIGHTS = f"""{CHARTS}.map((figure) => [...figure.querySelectorAll(".live .mark-line path")]
  .filter((path) => path.getBoundingClientRect().width > 20)
  .map((path) => path.getBoundingClientRect().top))"""
IDS = f"{CHARTS}.map((figure) => figure.id)"
TABLE = """[...document.querySelectorAll("summary")]
  .find((each) => each.textContent.endsWith(TITLE.toLowerCase())).parentElement
  .querySelector("table").innerText"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protocols")
    with open_store(str(fill_protocols(folder / "p.sqlite", ("one", HOSTILE)))) as store:
        (folder / "report.html").write_text(render_page(read_views(store, details=True)), "utf-8")
    return folder / "report.html"


def titled(expression: str, title: str) -> str:
    return expression.replace("TITLE", repr(title))


@pytest.mark.parametrize("width", [390, 1280])
def test_the_parts_of_the_classic_protocols(browser: Browser, page: Path, width: int) -> None:
    browser.load(page, width=width, height=40000)
    browser.evaluate(UNFOLD)
    browser.evaluate(DRAWN)
    thin, warm, life = TITLES
    # A panel a cell: two lines, two bands, a dot for each part and pass.
    assert browser.evaluate(titled(LINES, thin)) == [[2, 2, 2 * len(PARTS)]] * 2
    # One chart with a line a cell.
    assert [each[0] for each in browser.evaluate(titled(LINES, warm))] == [2]
    assert browser.evaluate(titled(SHARES, life)) == [2 * 3]
    for first, second in browser.evaluate(titled(HEIGHTS, thin)):
        assert second < first  # rewriting is faster: its line lies higher
    table = browser.evaluate(titled(TABLE, thin)).splitlines()
    assert table[1].split()[-4:] == ["100.5", "110.5", "120.5", "130.5"]
    ours = {each for title in TITLES for each in browser.evaluate(titled(IDS, title))}
    assert [text for text in browser.evaluate(CUT) if text.split()[0] in ours] == []
    assert browser.evaluate(OUTSIDE) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


def test_single_runs_make_no_console_complain(browser: Browser, tmp_path: Path) -> None:
    with open_store(str(fill_protocols(tmp_path / "p.sqlite", ("one", "two"), runs=1))) as store:
        (tmp_path / "p.html").write_text(render_page(read_views(store, details=True)), "utf-8")
    browser.load(tmp_path / "p.html", width=1280, height=40000)
    browser.evaluate(UNFOLD)
    browser.evaluate(DRAWN)
    assert browser.evaluate(titled(LINES, TITLES[0])) == [[2, 0, 2 * len(PARTS)]] * 2
    assert browser.complaints() == []
