"""The first screen is the answer: on the page, in `rank` and at the end of `run`."""

import io
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import DIALECTS
from diskproof.records import Cell
from diskproof.records.verdicts import DURABILITIES, Durability, Fault
from diskproof.report.advice.chart import LANES, Judged, loss_caption, loss_chart
from diskproof.report.advice.keeping import find_keeping
from diskproof.report.advice.own_wish import find_own_dialect, find_own_wish
from diskproof.report.barred import Bars
from diskproof.report.head import find_head
from diskproof.report.page import render_page
from diskproof.report.study_tables import ranking_json, render_rankings, render_study
from diskproof.report.view import StudyView
from support.advice_views import DAEMON, advice_view

UNSAFE = re.compile(r"\bunsafe\b")
CROWNED = re.compile(
    r"\buse [^:;]*|(?:does|is) [^.;]* for this, too|stay with [^.;]*|choose: [^.]*"
)
FRONTENDS = {**DAEMON, "frontend": ("daemon", "guest")}


def told_view(words: list[Durability | None], fastest: str, seed: int) -> StudyView:
    """A study whose ``fastest`` cache mode is thrice as fast; verdicts go round ``words``."""

    def judge(cell: Cell) -> dict[Fault, Durability]:
        word = words[int(cell.id, 16) % len(words)]
        return {"power": word, "qemu-kill": "keeps"} if word else {}

    speeds = {("cache", fastest): 3.0}
    view = advice_view(loads=("sync-write", "reads"), judge=judge, speeds=speeds, seed=seed)
    loads = {load.name: load for load in view.workloads}
    return replace(view, parts={**view.parts, "advice": tuple(loads), "ranking": loads})


def shown(content: object) -> str:
    sink = io.StringIO()
    Console(file=sink, width=80, highlight=False).print(content)
    return sink.getvalue()


class Pastes(HTMLParser):
    """What can be copied from a page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("class", "paste") in attrs:
            self.texts.append("")
            self._depth = 1
        elif self._depth and tag == "div":
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        self._depth -= bool(self._depth) and tag == "div"

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.texts[-1] += data


def pastes_of(page: str) -> list[str]:
    found = Pastes()
    found.feed(page)
    return found.texts


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([None, *DURABILITIES]), min_size=1, max_size=4),
    st.sampled_from(["none", "writeback", "unsafe"]),
    st.integers(1, 1000),
)
def test_no_sentence_names_what_drops_flushes_as_what_to_use(
    words: list[Durability | None], fastest: str, seed: int
) -> None:
    view = told_view(words, fastest, seed)
    head = find_head(view)
    assert len(head.answers) == 2
    for name, answer in head.answers:
        crowned = CROWNED.findall(f"{name} {answer}")
        assert not any(map(UNSAFE.search, crowned)), crowned
    for text in (shown(render_study(view)), shown(render_rankings([(view, None)], 0))):
        first = text.split("\n\nstudy ")[0]
        assert first.startswith("For ") and "For sync-write " in first
        assert not any(map(UNSAFE.search, CROWNED.findall(" ".join(first.split()))))
    told = ranking_json(view, None, 0)["answer"]
    assert isinstance(told, list) and [each["workload"] for each in told] == ["sync-write", "reads"]
    assert all(not each["chosen"] or each["chosen"]["cache"] != "unsafe" for each in told)


def test_the_page_begins_with_the_answer_and_its_lines() -> None:
    view = told_view(["keeps"], "unsafe", 3)
    page = render_page([view])
    texts = pastes_of(page)
    assert len(texts) >= len(DIALECTS) and all(text.startswith("copy") for text in texts)
    assert not any(UNSAFE.search(text) or '"no-flush":true' in text for text in texts)
    order = [
        "<strong>For sync-write",
        "The lines to paste",
        "Speed against the worst loss",
        "How fast is each cell under sync-write?",
        "How was it measured",
    ]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    titles = re.findall(r'class="dialect"[^>]*><summary>(.*?)</summary>', page)
    assert unescape(titles[0]) == DIALECTS["qemu"].title and len(titles) == len(DIALECTS)


def judged_of(view: StudyView) -> list[Judged]:
    bars = Bars(view.study)
    return [
        (line, find_keeping(line.durability, "power", bars.find(line.ranked.cell)))
        for line in view.workloads[0].lines
    ]


def test_what_corrupts_lies_below_every_loss_and_what_nobody_judged_apart() -> None:
    def judge(cell: Cell) -> dict[Fault, Durability]:
        words: dict[str, Durability] = {"none": "keeps", "writeback": "corrupts", "unsafe": "loses"}
        word = words.get(cell.level("cache"))
        return {"power": word} if word else {}

    view = advice_view(judge=judge)
    spec, hidden = loss_chart(view.workloads[0], judged_of(view))
    rows = spec["data"]["values"]
    assert [row["place"] for row in rows] == list(range(len(rows))) and hidden == 0
    heads = [row["head"] for row in rows if "head" in row]
    assert heads == [LANES[place].head for place in (0, 1, 3, 4)]
    lanes: dict[str, list[str]] = {}
    for row in rows:
        if "head" in row:
            lanes[row["head"]] = []
        else:
            lanes[heads[len(lanes) - 1]].append(row["name"])
    caches = [{name.split()[-1] for name in names} for names in lanes.values()]
    assert caches == [{"none"}, {"writethrough"}, {"unsafe"}, {"writeback"}]
    losing = next(row for row in rows if "unsafe" in row.get("name", ""))
    assert losing["figure"].endswith("loses 64, <1 ms")


def test_of_many_cells_each_lane_shows_its_best() -> None:
    many = {**FRONTENDS, "aio": ("threads", "native", "io_uring")}
    view = advice_view(many, judge=lambda cell: {"power": "keeps"})
    judged = judged_of(view)
    spec, hidden = loss_chart(view.workloads[0], judged)
    rows = spec["data"]["values"]
    assert hidden == len(judged) - 16 and len(rows) == 18
    assert f"{hidden} more cells" in loss_caption(view.workloads[0], "daemon", judged, hidden)


def test_the_page_of_a_study_that_is_like_a_manager_speaks_of_that_one() -> None:
    view = advice_view(loads=("sync-write",))
    assert find_own_dialect(view.study) is None and find_own_wish(view).stack == "QEMU"
    like = replace(view, study=replace(view.study, text='like = "proxmox"\n'))
    own = find_own_dialect(like.study)
    assert own and own.name == "proxmox"
    assert find_own_wish(like).stack == "Proxmox VE"
    assert find_own_wish(like).defaults == own.defaults(Target())
    several = replace(view.study, text='like = ["proxmox", "libvirt"]\n')
    assert find_own_dialect(several) is None
    assert find_own_dialect(replace(view.study, text="no = study = at all")) is None
