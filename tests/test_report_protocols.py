"""Curves of thin disks, warm-ups and lives of caches: from a real store to words and tables."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from diskproof.cli.result_verbs import show
from diskproof.errors import UsageError
from diskproof.report.chapter import Drawing
from diskproof.report.protocols.find import ProtocolView
from diskproof.report.protocols.page import chosen_percents, protocol_parts, ratio_words
from diskproof.report.protocols.table import short_figure
from diskproof.report.read import read_views
from diskproof.report.results import render_results
from diskproof.store import open_store
from support.grid_stores import fill_grids
from support.protocol_stores import PARTS, fill_protocols


@pytest.fixture(scope="module")
def protocols(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ProtocolView]:
    path = fill_protocols(tmp_path_factory.mktemp("protocols") / "p.sqlite", ("one", "two"))
    with open_store(str(path)) as store:
        [view] = read_views(store, details=True)
    return dict(view.parts["protocols"])


def test_curves_are_means_over_runs_by_part(protocols: dict[str, ProtocolView]) -> None:
    first, second = protocols["thin"].curves[0].curves
    assert (first.name, second.name, first.unit) == ("first_write", "rewrite", "MiB/s")
    assert [end for end, _ in first.points] == list(PARTS)
    assert [interval.mean for _, interval in first.points] == [100.5, 110.5, 120.5, 130.5]
    assert [interval.mean for _, interval in second.points] == [201.0, 221.0, 241.0, 261.0]
    assert all(interval.half_width for _, interval in first.points)
    assert "2.00 x as fast as the first write (" in ratio_words(protocols["thin"].curves[0])


def test_the_warm_up_tells_runs_that_were_not_steady(protocols: dict[str, ProtocolView]) -> None:
    cell = protocols["reread"].warm_ups[0]
    assert (cell.cold.mean, cell.warm.mean, cell.steady_runs) == (50.0, 1000.5, 1)
    assert cell.course[0][1].mean == 100.0 and cell.course[-1] == (4.0, cell.course[-2][1])
    [part] = protocol_parts(protocols["reread"], Drawing().figure)
    assert part.rows[0][1:] == (
        "50.00 \u00b1 0.50",
        "1000 \u00b1 6",
        "20.01",
        "1.500 (1 of 2 runs)",
    )


def test_the_life_of_a_cache_is_told_in_shares_of_the_disk(
    protocols: dict[str, ProtocolView],
) -> None:
    cell = protocols["life"].cache_lives[0]
    assert [each.mean for each in (cell.read, cell.after_reset, cell.after_end)] == [50, 50, 25]
    [part] = protocol_parts(protocols["life"], Drawing().figure)
    assert list(part.heads[1:4]) == ["read, %", "guest reset, %", "QEMU ended, %"]
    values = part.figures[0].spec["data"]["values"]
    assert [row["v"] for row in values] == [50.0, 50.0, 25.0] * 2


def test_other_workloads_have_none_of_it(protocols: dict[str, ProtocolView]) -> None:
    assert protocols["life"].curves == protocols["life"].warm_ups == ()
    assert protocols["thin"].cache_lives == ()
    assert protocol_parts(ProtocolView(), Drawing().figure) == []


def test_a_table_has_the_first_part_the_last_and_some_between(
    protocols: dict[str, ProtocolView],
) -> None:
    cells = protocols["thin"].curves
    assert chosen_percents(cells) == PARTS
    assert chosen_percents(cells, 2) == (25, 100)


def shown(path: Path, width: int = 80) -> list[str]:
    with open_store(str(path)) as store:
        console = Console(width=width, file=io.StringIO(), highlight=False)
        results = store.results()
        console.print(render_results(store.studies(), results, store.figures(results)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_terminal_gets_thin_disks_in_80_columns(tmp_path: Path) -> None:
    lines = shown(fill_protocols(tmp_path / "p.sqlite", ("one", "two")))
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "first_write 25 %" in line]
    at = lines.index("thin: MiB/s by % of the disk touched")
    assert lines[at + 1].split() == ["cell", "pass", "25", "%", "50", "%", "75", "%", "100", "%"]
    assert lines[at + 2].split() == ["one", "first", "write", "100.5", "110.5", "120.5", "130.5"]
    assert lines[at + 3].split() == ["rewrite", "201.0", "221.0", "241.0", "261.0"]


def test_a_terminal_gets_the_best_and_the_worst_of_each_test_of_iozone(tmp_path: Path) -> None:
    lines = shown(fill_grids(tmp_path / "g.sqlite", ("one", "two"), "grids"))
    assert max(map(len, lines)) <= 80 and len(lines) < 20
    at = lines.index("iozone: MiB/s at record size/file size")
    mean = (100.5 * 200.5 * 300.5 * 400.5) ** 0.25
    expected = f"one write 400.5 64K/1M 100.5 4K/64K {mean:.1f}".split()
    assert lines[at + 2].split() == expected
    assert lines[at + 3].split()[0] == "random_read"


def test_show_knows_a_test_of_iozone_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(fill_grids(tmp_path / "g.sqlite", ("one",), "grids"))
    show(store, metric="random_read")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    at = lines.index(["64K", "1M"])
    assert lines[at + 1 : at + 3] == [["4K", "100", "300"], ["64K", "200", "400"]]
    show(store, metric="write", as_json=True)
    told = {row["metric"] for row in json.loads(capsys.readouterr().out)}
    assert told == {"write 4K/64K", "write 64K/64K", "write 4K/1M", "write 64K/1M"}
    show(store, metric="write 4K/1M")
    one = capsys.readouterr().out
    assert "write 4K/1M" in one and "record size by" not in one
    with pytest.raises(UsageError) as caught:
        show(store, metric="nope")
    assert "mean_bandwidth, write, random_read" in caught.value.why


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.45678, "0.457"), (98.76, "98.8"), (99.97, "100"), (1234.4, "1234"), (12345, "12.3k")],
)
def test_short_figures(value: float, text: str) -> None:
    assert short_figure(value) == text
