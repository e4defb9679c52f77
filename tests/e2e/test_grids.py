"""iozone's heat maps in a real Chromium. Requires chromium (apt-get install chromium)."""

from pathlib import Path

import pytest

from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.store import open_store
from e2e.test_page import CUT, DRAWN, OUTSIDE, UNFOLD
from support.browser import Browser, find_chromium
from support.grid_stores import fill_grids
from support.report_views import HOSTILE

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs chromium")
MAPS = "document.querySelectorAll('h3 + .cards figure:has(select)')"
FIELDS = f"[...{MAPS}].map((map) => map.querySelectorAll('.live .mark-rect path').length)"
TEXTS = """[...document.querySelectorAll('details table.tight')]
  .filter((table) => table.closest('details').textContent.includes('The same as tables'))
  .map((table) => table.innerText)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grids")
    with open_store(str(fill_grids(folder / "g.sqlite", ("one", HOSTILE), "grids"))) as store:
        (folder / "report.html").write_text(render_page(read_views(store, details=True)), "utf-8")
    return folder / "report.html"


@pytest.mark.parametrize("width", [390, 1280])
def test_a_map_for_each_test_of_the_chosen_cell(browser: Browser, page: Path, width: int) -> None:
    browser.load(page, width=width, height=40000)
    browser.evaluate(UNFOLD)
    browser.evaluate(DRAWN)
    assert browser.evaluate(f"{MAPS}.length") == 2
    assert browser.evaluate(FIELDS) == [4, 4]
    assert browser.evaluate(f"{MAPS}[0].querySelectorAll('option').length") == 2
    assert browser.evaluate(CUT.replace("figure svg", "figure:has(select) svg")) == []
    assert browser.evaluate(OUTSIDE.replace("main *", "figure:has(select) *")) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    tables = browser.evaluate(TEXTS)
    assert len(tables) == 4  # two tests of two cells
    assert tables[0].split() == ["64K", "1M", "4K", "100.5", "300.5", "64K", "200.5", "400.5"]
