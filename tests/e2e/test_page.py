"""The page in a real Chromium: charts drawn, nothing asked of the network, nothing overflows.

Requires chromium (apt-get install chromium).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.records import Cell
from diskproof.records.verdicts import Durability, Fault
from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.store import open_store
from diskproof.store.formats.kvm_perf import import_kvm_perf
from support.advice_views import advice_view
from support.browser import Browser, find_chromium
from support.report_views import HOSTILE, make_view

SAMPLE = Path(__file__).parents[1] / "golden" / "kvm-perf-sample.txt"
pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs chromium")

UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
HEAT = "document.querySelector('figure:has(select)')"
# Resolves once all charts have replaced their pictures; tall windows make all of them near.
DRAWN = """new Promise((resolve) => {
  const figures = [...document.querySelectorAll("figure[id^=chart-]")];
  const done = () => figures.every((figure) => figure.dataset.drawn);
  if (done()) resolve(figures.length);
  new MutationObserver(() => done() && resolve(figures.length)).observe(
    document.body, { subtree: true, attributes: true, attributeFilter: ["data-drawn"] });
})"""
MARKS = """[...document.querySelectorAll("figure[id^=chart-]")].map((figure) =>
  figure.querySelectorAll(".KIND svg .role-mark :is(path, line)").length)"""
# Texts of charts that their picture cuts off.
CUT = """[...document.querySelectorAll("figure svg text")].filter((text) => {
  const box = text.getBoundingClientRect(), all = text.closest("svg").getBoundingClientRect();
  return box.width > 0 && (box.left < all.left - 1 || box.right > all.right + 1
    || box.top < all.top - 1 || box.bottom > all.bottom + 1);
}).map((text) => text.closest("figure").id + " " + text.textContent)"""
# Shapes and texts that reach beyond the window, the page's sideways-scrolling tables apart.
OUTSIDE = """[...document.querySelectorAll("main *")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && !element.closest(".scroll") && !element.closest("[hidden]")
    && !element.closest("details:not([open])") && (box.right > innerWidth + 1 || box.left < -1);
}).map((element) => element.tagName + " " + element.textContent.slice(0, 40))"""


# Texts of the first picture with their boxes, from top to bottom.
TEXTS = """[...document.querySelector("figure .live svg").querySelectorAll("text")]
  .filter((text) => text.textContent && text.getBoundingClientRect().width > 0)
  .map((text) => { const box = text.getBoundingClientRect();
    return [text.textContent, box.left, box.top, box.right, box.bottom]; })
  .sort((a, b) => a[2] - b[2])"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page([make_view(name=f"study {HOSTILE}")]), "utf-8")
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the published results: with all that is computed from a store."""
    folder = tmp_path_factory.mktemp("published")
    found = import_kvm_perf(SAMPLE.read_bytes(), "kvm-perf")
    with open_store(str(folder / "k.sqlite"), create=True) as store:
        store.add_imported(found.study, found.host, found.runs)
        page = render_page(read_views(store, details=True))
    (folder / "report.html").write_text(page, "utf-8")
    return folder / "report.html"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose cells keep, lose, corrupt, and are not judged."""

    def judge(cell: Cell) -> dict[Fault, Durability]:
        words: dict[str, Durability] = {"none": "keeps", "writeback": "corrupts", "unsafe": "loses"}
        word = words.get(cell.level("cache"))
        return {"power": word} if word else {}

    view = advice_view(judge=judge)
    parts = {"advice": ("sync-write",), "ranking": {load.name: load for load in view.workloads}}
    path = tmp_path_factory.mktemp("judged") / "report.html"
    path.write_text(render_page([replace(view, parts=parts)]), "utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_alive(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.load(page, width=width, height=40000, dark=dark)
    browser.evaluate(UNFOLD)
    assert browser.evaluate(DRAWN) == 18
    assert min(browser.evaluate(MARKS.replace("KIND", "live"))) > 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OUTSIDE) == []
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scripts", [False, True])
def test_nothing_is_cut(browser: Browser, published: Path, width: int, scripts: bool) -> None:
    browser.load(published, width=width, height=40000, scripts=scripts)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.evaluate(OUTSIDE) == []
    browser.evaluate(UNFOLD)
    if scripts:
        browser.evaluate(DRAWN)
    assert browser.evaluate("document.querySelectorAll('figure').length") == 14
    assert browser.evaluate(CUT) == browser.evaluate(OUTSIDE) == browser.complaints() == []


@pytest.mark.parametrize("width", [390, 1280])
def test_readable_with_scripts_off(browser: Browser, page: Path, width: int) -> None:
    browser.load(page, width=width, scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)  # ours, to look at it
    assert browser.evaluate(OUTSIDE) == []
    browser.evaluate(UNFOLD)
    assert min(browser.evaluate(MARKS.replace("KIND", "static"))) > 0
    assert browser.evaluate("document.querySelectorAll('[data-drawn]').length") == 0
    assert browser.evaluate("document.querySelectorAll('table.ranking tbody tr').length") == 96
    assert browser.evaluate(OUTSIDE) == []
    assert browser.requests() == [page.as_uri()]


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1280, False)])
def test_the_first_picture_can_be_read(
    browser: Browser, judged: Path, width: int, dark: bool
) -> None:
    """It is drawn before anything is unfolded, no text lies on another, and the worst lies low."""
    browser.load(judged, width=width, height=2000, dark=dark)
    browser.evaluate("""new Promise((done) => {
      const drawn = () => document.querySelector("figure[data-drawn]");
      const look = () => drawn() ? done() : setTimeout(look, 20);
      look();
    })""")
    texts = browser.evaluate(TEXTS)
    names = [text for text, *_ in texts]
    lanes = [name for name in names if name.split()[0] in ("keeps", "not", "loses", "corrupts:")]
    assert [lane.split()[0] for lane in lanes] == ["keeps", "not", "loses", "corrupts:"]
    assert sum(name.startswith(("raw ", "qcow2 ")) for name in names) == 8
    for place, (one, *a) in enumerate(texts):
        for other, *b in texts[:place]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (one, other)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


def test_a_line_is_copied_or_else_selected(browser: Browser, judged: Path) -> None:
    browser.load(judged, width=1280)
    told = browser.evaluate("""(async () => {
      const button = document.querySelector(".paste button");
      button.click();
      await new Promise((done) => {
        const look = () => button.textContent === "copy" ? setTimeout(look, 20) : done();
        look();
      });
      return [button.textContent, getSelection().toString()];
    })()""")
    line = browser.evaluate("document.querySelector('.paste pre').textContent")
    assert line.startswith("-blockdev ") and "no-flush" in line
    assert told[0] == "copied" or told == ["selected: Ctrl+C", line]
    browser.load(judged, width=1280, scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.evaluate("document.querySelectorAll('.paste button:not([hidden])').length") == 0


def test_other_factors_can_be_chosen(browser: Browser, page: Path) -> None:
    browser.load(page, width=1280, height=40000)
    browser.evaluate(UNFOLD)
    browser.evaluate(DRAWN)
    rows = f"{HEAT}.querySelectorAll('.live .mark-rect path').length"
    before = browser.evaluate(rows)
    browser.evaluate(
        """(() => {
      const select = HEAT.querySelectorAll("select")[1];
      select.value = "format";
      select.dispatchEvent(new Event("change", { bubbles: true }));
      return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    })()""".replace("HEAT", HEAT)
    )
    assert (before, browser.evaluate(rows)) == (8, 4)


def test_the_policy_stops_what_a_page_must_not_do(browser: Browser, page: Path) -> None:
    """The guard itself: an injected script and a fetch are refused."""
    browser.load(page, width=800)
    refused = browser.evaluate("""new Promise((resolve) => {
      document.addEventListener("securitypolicyviolation",
        (event) => resolve(event.violatedDirective));
      const script = document.createElement("script");
      script.textContent = "window.broken = 1";
      document.head.append(script);
    })""")
    assert refused.startswith("script-src") and browser.evaluate("window.broken") is None
    fetched = "fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => error.name)"
    assert browser.evaluate(fetched) == "TypeError"
    assert any("Content Security Policy" in text for text in browser.complaints())
