"""The page as text: escaping, policy, raw values, charts as specifications."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from diskproof.errors import UsageError
from diskproof.records import Series
from diskproof.report import vega
from diskproof.report.details.chart import MAX_POINTS, series_chart
from diskproof.report.details.page import chosen_series
from diskproof.report.page import content_policy, render_page, script_json
from diskproof.report.ranking.chart import heat_factors
from diskproof.report.ratios import ratio_chart
from diskproof.report.scores.chart import pareto_chart
from diskproof.stats.pareto import FrontPoint
from support.advice_views import advice_view
from support.report_views import FACTORS, HOSTILE, make_view

pytestmark = pytest.mark.long


class Elements(HTMLParser):
    """Tags, attributes and the content of scripts as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def page() -> str:
    return render_page([make_view(name=HOSTILE)])


@pytest.fixture(scope="module")
def elements(page: str) -> Elements:
    parser = Elements()
    parser.feed(page)
    return parser


def test_hostile_text_makes_no_element(page: str, elements: Elements) -> None:
    scripts = [attrs for tag, attrs in elements.tags if tag == "script"]
    assert [attrs.get("id") for attrs in scripts] == ["raw", "vega", "specs", None]
    assert not [tag for tag, _ in elements.tags if tag == "img"]
    assert not [name for _, attrs in elements.tags for name in attrs if name.startswith("on")]
    assert "&lt;/script&gt;" in page and "{{ 7*7 }}" in page and "\x00" not in page


def test_nothing_points_outside(elements: Elements) -> None:
    for tag, attrs in elements.tags:
        for name in ("src", "href", "action", "data", "xlink:href"):
            assert not (attrs.get(name) or "").strip().startswith(("http", "//")), tag


def test_policy_admits_only_our_scripts(elements: Elements, page: str) -> None:
    policy = next(
        attrs["content"] or ""
        for tag, attrs in elements.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy and "connect-src" not in policy
    script = re.findall(r"<script>(.*?)</script>", page, re.S)[0]
    bundle = gzip.decompress(base64.b64decode(elements.scripts[1])).decode()
    for text in (script, bundle):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert content_policy(["x"]) != content_policy(["y"])


def test_every_value_is_in_the_page_with_its_run(elements: Elements) -> None:
    raw = json.loads(elements.scripts[0])
    view = make_view(name=HOSTILE)
    expected = {
        run: value
        for load in view.workloads
        for line in load.lines
        for run, value in zip(line.run_ids, line.values, strict=True)
    }
    assert {run: value for row in raw for run, value in row["runs"].items()} == expected
    assert all({"study", "host", "workload", "cell", "metric", "unit"} <= set(row) for row in raw)


def test_content_of_each_kind(page: str) -> None:
    for text in (
        "does not distort the order of flushes",
        "aio=native needs direct I/O",
        "reads come from memory",
        "query-named-block-nodes",
        "console, its end",
        "run-failed-1",
        "cpu.model",
        "geometric mean over all other factors",
        "<th>geometric mean, ",
        "latency by percentile",
        "Which cell is best over all workloads?",
        "On the front, where no other cell is faster in both: 1 ",
    ):
        assert text in page


def test_static_pictures_are_bounded_and_every_chart_has_a_specification(page: str) -> None:
    many = render_page([make_view({"cache": ("none", "unsafe")}, [f"w{i}" for i in range(30)])])
    assert 15 <= many.count("<svg xmlns") <= 20
    specs = re.search(r'id="specs">([^<]*)<', many)
    assert specs is not None
    named = set(json.loads(gzip.decompress(base64.b64decode(specs[1]))))
    assert named == set(re.findall(r'<figure id="(chart-\d+)"', many)) and len(named) > 100
    assert "Drawn with scripts on" in many and "Drawn with scripts on" not in page


def test_an_empty_store_and_one_run_give_a_page() -> None:
    assert "</html>" in render_page([])
    assert "no difference is proved between" in render_page([make_view(runs=1)])


def test_script_json_cannot_leave_its_element() -> None:
    text = script_json({"a": "</script><!--"})
    assert "<" not in text and json.loads(text) == {"a": "</script><!--"}


def test_heat_map_takes_the_factors_that_matter() -> None:
    load = make_view(FACTORS, details=False).workloads[0]
    factors = heat_factors(load)
    assert factors is not None and "cache" in factors
    one = make_view({"cache": ("none", "unsafe")}, details=False).workloads[0]
    assert heat_factors(one) is None


def test_ratios_stand_with_their_ties() -> None:
    load = make_view(FACTORS, details=False).workloads[0]
    chart = ratio_chart([(line.label, line.ranked) for line in load.lines], "x")
    assert chart is not None and chart.hidden == len(load.lines) - 24
    rows = chart.spec["data"]["values"]
    assert [row["ratio"] for row in rows[1:]] == pytest.approx(
        [line.ranked.ratio.ratio for line in load.lines[1:24]], rel=1e-4
    )
    assert all(row["low"] < row["ratio"] < row["high"] and row["tie"] for row in rows[1:])
    single = make_view({"cache": ("none",)}, details=False).workloads[0]
    assert ratio_chart([("a", line.ranked) for line in single.lines], "x") is None


def test_a_wild_interval_is_cut_at_the_edge_of_the_chart() -> None:
    load = make_view({"cache": ("none", "unsafe")}, runs=3, details=False).workloads[0]
    wild = replace(load.lines[1].ranked.ratio, low=1e-9, high=load.lines[1].ranked.ratio.ratio)
    places = [("best", load.lines[0].ranked), ("wild", replace(load.lines[1].ranked, ratio=wild))]
    chart = ratio_chart(places, "x")
    assert chart is not None and chart.untold and "cannot tell yet" in chart.caption
    json.dumps(chart.spec, allow_nan=False)
    assert chart.spec["data"]["values"][1]["low"] is None
    near = replace(wild, low=wild.ratio / 5, high=wild.ratio * 1.1)
    places[1] = ("near", replace(load.lines[1].ranked, ratio=near))
    chart = ratio_chart(places, "x")
    assert chart is not None and chart.cut and not chart.untold
    assert chart.spec["data"]["values"][1]["low"] == pytest.approx(wild.ratio / 4, rel=1e-3)


def test_the_front_is_numbered_and_near_points_share_a_number() -> None:
    scores = ((1.0, 0.2), (0.6, 0.7), (0.59, 0.71), (0.2, 1.0), (0.1, 0.1))
    points = [
        FrontPoint((("cell", str(number)),), each, number < 4, number == 4)
        for number, each in enumerate(scores)
    ]
    spec = pareto_chart(points, {point.levels: point.levels[0][1] for point in points})
    numbers = [row["number"] for row in spec["layer"][2]["data"]["values"]]
    assert numbers == ["1", "2, 3", "4"]
    assert [row["told"] for row in spec["data"]["values"]] == ["on the front"] * 4 + ["off"]
    assert vega.draw_all([spec])[0].count("<path") > 5


def test_thinning_keeps_the_mean() -> None:
    series = Series("host", "x", "u", tuple(map(float, range(1000))), (1.0, 3.0) * 500)
    spec = series_chart("x", "u", [("cell", series)])
    [row] = spec["data"]["values"]
    assert len(row["s"]) == len(row["value"]) <= MAX_POINTS
    assert all(value == pytest.approx(2.0, abs=0.1) for value in row["value"])


def test_series_worth_a_picture_come_first() -> None:
    named = [("host", "disk.util"), ("host", "swap"), ("host", "cpu.system")]
    named += [("fio", "iops"), ("fio", "bandwidth"), ("fio", "latency")]
    traces = {name: [("cell", Series(source, name, "u", (0.0,), (1.0,)))] for source, name in named}
    assert chosen_series(traces) == ["iops", "bandwidth", "cpu.system", "disk.util"]


def test_a_chart_whose_text_no_picture_can_hold_is_drawn() -> None:
    """A control character in SVG ends the drawing library with SIGABRT."""
    rows = [{"name": "a\x1b[2J\0b\ufffe", "place": 0, "mean": 2.0}]
    bars = {"x": vega.amount("mean"), "y": {"field": "name", "type": "nominal"}}
    (picture,) = vega.draw_all([vega.chart(rows, 40, mark="bar", encoding=bars)])
    assert picture.startswith("<svg") and "a\ufffd[2J\ufffdb\ufffd" in picture


def test_charts_that_cannot_be_drawn_end_with_a_sentence() -> None:
    with pytest.raises(UsageError, match="the charts cannot be drawn"):
        vega.draw_all([{"$schema": "none", "mark": {"type": 7}}])


def test_a_chart_that_takes_too_much_takes_no_more_than_its_process() -> None:
    """A sequence of a billion rows is one line of a specification."""
    endless = {"data": {"sequence": {"start": 0, "stop": 1e9}}, "mark": "point", "encoding": {}}
    with pytest.raises(UsageError, match="the charts cannot be drawn"):
        vega.draw_all([{"$schema": "https://vega.github.io/schema/vega-lite/v6.json", **endless}])


def test_a_page_of_several_studies_has_contents_and_says_where_each_was_measured() -> None:
    view = advice_view({"cache": ("none", "unsafe")}, blocks=2)
    facts = {"kernel": "6.1.0", "qemu_version": "7.2", "cpu_model": "CPU", "cpus": 2}
    host = replace(view.host, facts={**view.host.facts, **facts})
    view = replace(view, host=host, parts={})
    other = replace(view, study=replace(view.study, name="\u78c1\u76d8", id="s2"))
    page = render_page([view, other])
    assert "<title>diskproof: advised, \u78c1\u76d8</title>" in page
    for number in (1, 2):
        assert f'href="#study-{number}"' in page and f'id="study-{number}"' in page
    assert page.count("kernel: 6.1.0") == page.count("QEMU: 7.2") == 2
    assert "<nav" not in render_page([view])


def test_a_cell_that_loses_is_marked_by_shape_and_word_and_is_no_winner() -> None:
    view = advice_view({"cache": ("none", "unsafe")}, blocks=3)
    page = render_page([replace(view, parts={"ranking": {"sync-write": view.workloads[0]}})])
    assert '<span class="verdict-loses">\u25bc loses 64' in page
    assert '<span class="verdict-keeps">\u25cf keeps, all 120</span>' in page
    lossy = next(row for row in page.split("<tr") if "\u25bc loses 64" in row)
    assert lossy.startswith(' class="unfit"')
