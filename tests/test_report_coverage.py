"""The picture of how much was looked at, of searches that have not decided."""

from dataclasses import replace

from diskproof.records.verdicts import COVERED, Verdict
from diskproof.report import vega
from diskproof.report.crash.chart import coverage_chart
from diskproof.report.durability import find_looked

SO_FAR = Verdict(
    "power",
    "keeps",
    states_checked=300,
    states_total=1200,
    details={COVERED: {"acknowledgements": (5, 20), "changes": (10, 10)}},
)


def test_shares_are_of_each_kind_of_state() -> None:
    assert list(find_looked(SO_FAR)) == [
        ("acknowledgements", 5, 20),
        ("changes", 10, 10),
        ("states", 300, 1200),
    ]
    spec = coverage_chart([("daemon qcow2, power", [*find_looked(SO_FAR)])])
    rows = spec["data"]["values"]
    assert [(row["percent"], row["states"]) for row in rows] == [
        (25, "5 of 20"),
        (100, "10 of 10"),
        (25, "300 of 1,200"),
    ]
    assert [row.get("whole") for row in rows] == [100, None, None]
    assert {row["line0"] for row in rows if "line0" in row} == {"daemon qcow2, power"}


def test_what_is_not_known_is_not_drawn() -> None:
    covered = {"changes": (0, 0), "pairs": (1, 9)}
    unknown = replace(SO_FAR, states_total=None, details={COVERED: covered})
    assert list(find_looked(unknown)) == []
    assert list(find_looked(replace(SO_FAR, details={}, states_total=10, states_checked=12))) == [
        ("states", 12, 10)
    ]
    spec = coverage_chart(
        [("a", [*find_looked(replace(SO_FAR, states_total=10, states_checked=12))])]
    )
    assert max(row["percent"] for row in spec["data"]["values"]) == 100


def test_it_is_drawn() -> None:
    svg = vega.draw_all([coverage_chart([(name, [*find_looked(SO_FAR)]) for name in "ab"])])[0]
    assert svg.count("percent looked at") == 1 and svg.startswith("<svg")
