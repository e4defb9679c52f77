"""The page about tiles in a real Chromium. Requires chromium (apt-get install chromium)."""

from pathlib import Path

import pytest

from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.store import open_store
from e2e.test_page import CUT, DRAWN, MARKS, OUTSIDE, UNFOLD
from support.browser import Browser, find_chromium
from support.report_views import HOSTILE
from support.tile_stores import fill_tiles, tile_cell

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs chromium")

TIMELINE = "[...document.querySelectorAll('figure:has(select)')].at(-1)"
LANES = f"""[...{TIMELINE}.querySelectorAll('.live .mark-text text')]
  .map((text) => text.textContent).filter((text) => text.startsWith('tile '))"""
# Marks of live charts that have no colour, or that of what they lie on.
UNSEEN = """[...document.querySelectorAll("figure .live .role-mark :is(path, line)")]
  .filter((mark) => {
    const style = getComputedStyle(mark);
    const back = getComputedStyle(mark.closest("figure")).backgroundColor;
    return [style.fill, style.stroke].every((colour) => colour === "none" || colour === back);
  }).length"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiles")
    cells = (tile_cell("none", ksm="off"), tile_cell(f"writeback {HOSTILE}", ksm="on"))
    fill_tiles(folder / "t.sqlite", cells, fail="web")
    with open_store(str(folder / "t.sqlite")) as store:
        (folder / "report.html").write_text(render_page(read_views(store, details=True)), "utf-8")
    return folder / "report.html"


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True)])
def test_every_chart_is_drawn_and_none_is_cut(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.load(page, width=width, height=40000, dark=dark)
    browser.evaluate(UNFOLD)
    assert browser.evaluate(DRAWN) == 20
    assert min(browser.evaluate(MARKS.replace("KIND", "live"))) > 0
    assert browser.evaluate(UNSEEN) == 0
    assert browser.evaluate(CUT) == browser.evaluate(OUTSIDE) == browser.complaints() == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.requests() == [page.as_uri()]


def test_pictures_are_whole_with_scripts_off(browser: Browser, page: Path) -> None:
    browser.load(page, width=400, height=40000, scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)  # ours, to look at it
    browser.evaluate(UNFOLD)
    assert min(browser.evaluate(MARKS.replace("KIND", "static"))) > 0
    assert browser.evaluate(CUT) == browser.evaluate(OUTSIDE) == []


def test_the_timeline_has_every_machine_of_the_chosen_run(browser: Browser, page: Path) -> None:
    browser.load(page, width=1280, height=40000)
    browser.evaluate(DRAWN)
    guests = ("files-a", "files-b", "web", "db")
    assert browser.evaluate(LANES) == [f"tile {n} {g}" for n in (1, 2, 3) for g in guests]
    browser.evaluate(
        f"""(() => {{
      const select = {TIMELINE}.querySelector("select");
      select.value = "1 tile, none";
      select.dispatchEvent(new Event("change", {{ bubbles: true }}));
      return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    }})()"""
    )
    assert browser.evaluate(LANES) == [f"tile 1 {guest}" for guest in guests]
