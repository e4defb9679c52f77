"""The page is a tuple of chapters: a new one is told everywhere by its folder and its row alone."""

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from jinja2 import ChoiceLoader, DictLoader
from rich.console import Console
from rich.text import Text

from diskproof.records import HostRecord, StudyRecord
from diskproof.report import vega
from diskproof.report.chapter import Chapter, Draw, Lead, Source
from diskproof.report.chapters import CHAPTERS
from diskproof.report.head import find_head
from diskproof.report.page import environment, render_page
from diskproof.report.read import read_views
from diskproof.report.study_tables import render_study
from diskproof.report.view import StudyView
from diskproof.store import Store, open_store
from support.report_views import HOSTILE
from support.simulated_stores import fill, simulated_cells

REPORT = Path(__file__).parent.parent / "src" / "diskproof" / "report"
HOST = HostRecord("trimmer", "a host with trims alone", {})
TEMPLATE = "<section><h2>Trims</h2>{{ cards(figures) }}<p>{{ text }}</p></section>"
OF_LOAD = "<h3>Trims of {{ load }}</h3>"


def find_trims(source: Source) -> tuple[int, ...]:
    """As a chapter with runs of its own would find them: on one host of one study."""
    return (7, 11) if source.host.id == HOST.id else ()


def lead_trims(trims: tuple[int, ...], view: StudyView) -> Lead:
    return Lead(
        f"{len(trims)} trims", answers=(("trims", "They work."),), title="does a trim reach it?"
    )


def page_trims(trims: tuple[int, ...], view: StudyView, draw: Draw) -> Mapping[str, object]:
    chart = vega.chart([{"trims": each} for each in trims], 50, mark="bar")
    return {"figures": [draw(chart, "Trims by number.", 0)], "text": HOSTILE}


def table_trims(trims: tuple[int, ...], view: StudyView, best: int) -> Sequence[Text]:
    return [Text(f"trims: {trims}")]


def raw_trims(trims: tuple[int, ...]) -> Iterable[Mapping[str, object]]:
    return [{"trims": each} for each in trims]


def trim_hosts(store: Store, study: StudyRecord) -> Iterable[str]:
    return [HOST.id] if study.name == "trimmed" else []


TRIMS = Chapter(
    "trims",
    find_trims,
    page_trims,
    table=table_trims,
    lead=lead_trims,
    raw=raw_trims,
    hosts=trim_hosts,
)
LOAD_TRIMS = Chapter(
    "load_trims",
    lambda source: {load.name: load.name for load in source.workloads},
    lambda load, view, draw: {"load": load},
    on_each_workload=True,
)
WITH_TRIMS = (CHAPTERS[0], TRIMS, *CHAPTERS[1:4], LOAD_TRIMS, *CHAPTERS[4:])


@pytest.fixture
def views(tmp_path: Path) -> tuple[StudyView, ...]:
    """A measured study, and one that has nothing but trims."""
    fill(tmp_path / "s.sqlite", simulated_cells(loads=("one", "two")), blocks=2)
    with open_store(str(tmp_path / "s.sqlite")) as store:
        store.add_host(HOST)
        store.add_study(StudyRecord("t", "trimmed", "run", "", 1, 1, (), created=2e9))
        return read_views(store, details=True, chapters=WITH_TRIMS)


def test_a_chapter_is_on_the_page_by_its_row(
    views: tuple[StudyView, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = {"trims/page.html.j2": TEMPLATE, "load_trims/page.html.j2": OF_LOAD}
    loaders = [environment().loader, DictLoader(templates)]
    monkeypatch.setattr(environment(), "loader", ChoiceLoader(loaders))
    page = render_page(views, WITH_TRIMS)
    assert page.count("<h2>Trims</h2>") == 1 and "They work." in page
    assert "trimmed: does a trim reach it?" in page and "Trims by number." in page
    assert "<img src=x" not in page and "&lt;img" in page
    ranking, race = page.index("<h3>Ranking</h3>"), page.index("Which setting matters")
    assert ranking < page.index("<h3>Trims of one</h3>") < race
    raw = json.loads(page.split('id="raw">', 1)[1].split("</script>", 1)[0])
    assert {"study": "trimmed", "host": HOST.name, "trims": 11} in raw


def test_a_chapter_is_in_the_tables_and_at_the_head(views: tuple[StudyView, ...]) -> None:
    measured, trimmed = views
    assert find_head(trimmed, WITH_TRIMS).line.endswith("seed 1, 2 trims")
    assert "trims" not in find_head(measured, WITH_TRIMS).line
    sink = io.StringIO()
    Console(file=sink).print(render_study(trimmed, chapters=WITH_TRIMS))
    assert "trims: (7, 11)" in sink.getvalue()


def test_parts_that_are_not_there_are_not_kept(views: tuple[StudyView, ...]) -> None:
    measured, trimmed = views
    assert {"ranking", "runs", "details", "load_trims"} <= set(measured.parts)
    assert not {"trims", "crash", "tiles", "race", "protocols"} & set(measured.parts)
    assert set(trimmed.parts) == {"trims", "runs"}


def test_every_chapter_has_its_folder_and_every_folder_of_the_page_its_row() -> None:
    folders = {
        file.parent.name for file in REPORT.glob("*/page.py") if "CHAPTER" in file.read_text()
    }
    assert [chapter.name for chapter in CHAPTERS if chapter.name not in folders] == []
    assert folders == {chapter.name for chapter in CHAPTERS}
    assert all((REPORT / name / "page.html.j2").is_file() for name in folders)


def test_the_page_knows_no_chapter() -> None:
    """Nor does what stands at its head: whoever adds a chapter edits neither."""
    folders = "|".join(file.parent.name for file in REPORT.glob("*/__init__.py"))
    for name in ("page.py", "head.py", "chapter.py", "templates/study.html.j2"):
        found = re.findall(rf"report[./]({folders})\b", (REPORT / name).read_text())
        assert found == [], name
