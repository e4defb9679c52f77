"""Recordings of the monitor: read back, refused, drawn, written as Parquet."""

import io
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from diskproof.errors import UsageError
from diskproof.report.monitor.chart import MAX_WATCHED_POINTS, MetricLine, thinned, watched_chart
from diskproof.report.monitor.page import line_summaries, render_monitor_page, row_summaries
from diskproof.report.monitor.pictures import choose_pictures
from diskproof.report.monitor.samples import (
    MAX_COLUMNS,
    MonitorColumn,
    MonitorRecording,
    parse_recording,
)
from diskproof.report.monitor.table import render_parquet

HOSTILE = "<script>alert(1)</script>"
COLUMNS = {
    "cpu.user": "percent",
    "cpu.system": "percent",
    "disk.sda.read": "MiB/s",
    "disk.sda.flush": "1/s",
    "disk.sda.flush_await": "ms",
    "disk.nvme0n1.flush": "1/s",
    "memory.used": "MiB",
    "memory.used_with_cache": "MiB",
    "psi.io": "percent",
    "arc.size": "MiB",
    "arc.hit": "percent",
    "arc.misses": "1/s",
    "own.hits": "1/s",
}
ROW_COLUMNS = {"vm.vcpu": "percent", "vm.guest_flush": "1/s", "vm.host_fdatasync": "1/s"}


def described(columns: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "unit": unit} for name, unit in columns.items()]


def make_json(samples: int = 5, rows: bool = True) -> bytes:
    """A recording of two machines, of which one comes later."""
    header: dict[str, Any] = {"type": "header", "protocol": 1, "columns": described(COLUMNS)}
    if rows:
        header["rows"] = {"key": "vm", "columns": described(ROW_COLUMNS)}
    lines = [header]
    for at in range(samples):
        values = [at + place / 100 for place in range(len(COLUMNS))]
        sample: dict[str, Any] = {
            "type": "sample",
            "time": 1.7e9 + at,
            "values": [*values[:-1], None],
        }
        if rows:
            sample["rows"] = [["web", 50.0, 10.0 * at, 0.0]]
            sample["rows"] += [[HOSTILE, 5.0, None, 3.0]] if at else []
        lines.append(sample)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def make_csv(recording: MonitorRecording) -> bytes:
    """As the native program writes it."""
    head = [f"{column.name} [{column.unit}]" for column in recording.columns]
    tail = [f"{column.name} [{column.unit}]" for column in recording.row_columns]
    lines = [",".join(["time [s]", *head, recording.key, *tail])]

    def fields(values: tuple[float, ...]) -> list[str]:
        return ["" if math.isnan(value) else repr(value) for value in values]

    for at, values in zip(recording.times, recording.values, strict=True):
        for name, samples in recording.rows.items():
            for when, row in samples:
                if when == at:
                    lines.append(",".join([repr(at), *fields(values), name, *fields(row)]))
    return "".join(f"{line}\n" for line in lines).encode()


def same(a: MonitorRecording, b: MonitorRecording) -> bool:
    return repr(a) == repr(b)  # nan is not equal to itself


def test_json_and_csv_are_one_recording() -> None:
    recording = parse_recording(make_json(), "r.jsonl")
    assert recording.columns[2] == MonitorColumn("disk.sda.read", "MiB/s")
    assert len(recording.times) == 5 and recording.values[2][0] == 2.0
    assert math.isnan(recording.values[0][-1])
    assert recording.key == "vm" and list(recording.rows) == ["web", HOSTILE]
    assert len(recording.rows["web"]) == 5 and len(recording.rows[HOSTILE]) == 4
    assert same(parse_recording(make_csv(recording), "r.csv"), recording)


def test_a_line_that_was_cut_off_is_left_out() -> None:
    whole = make_json()
    assert len(parse_recording(whole[:-20], "r").times) == 4
    assert parse_recording(make_json(samples=0), "r").times == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: b"", "r:1"),
        (lambda text: b"hello\n", "r:1"),
        (lambda text: text.replace(b'"protocol": 1', b'"protocol": 2'), "r:1"),
        (lambda text: text.replace(b'"cpu.user"', b'"cpu.system"'), "'cpu.system' comes twice"),
        (lambda text: text.replace(b'"vm.vcpu"', b'"cpu.user"'), "comes twice"),
        (lambda text: text.replace(b'"sample"', b'"x"'), "r:2"),
        (lambda text: text.replace(b"2.01", b'"2.01"'), "r:4: .*a value is no number"),
        (lambda text: text.replace(b"2.01,", b""), "r:4: .*it has not 13 values"),
        (lambda text: text.replace(b"2.01", b"1" + b"0" * 400), "a value is no number"),
        (lambda text: text.replace(b'"web"', b"7"), "a row has no name"),
        (lambda text: text.replace(b"1700000002.0", b"null"), "r:4: .*no time"),
        (lambda text: b"[" * 100_000 + b"\n", "r:1"),
        (lambda text: b"{" + b'"a":{' * 100_000 + b"\n", "r:1"),
        (lambda text: b"time,a [s]\n", "no recording"),
        (lambda text: b"time [s],a [s],vm,x\n", "'x' has no unit"),
        (lambda text: b"time [s],a [s]\n1,2,3\n", "r:2: .*as many fields"),
        (lambda text: b"time [s],a [s]\n1,b\n", "r:2: .*no number"),
        (lambda text: b'time [s],a [s]\n1,"b\n', "r:2"),
    ],
)
def test_what_is_no_recording_is_refused_with_its_line(change: Any, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_recording(change(make_json()), "r")
    text = f"{caught.value.what} {caught.value.why}"
    assert re.search(told, text), text


def test_too_many_columns_are_refused() -> None:
    wide = {f"a.{place}": "s" for place in range(MAX_COLUMNS + 1)}
    header = {"type": "header", "protocol": 1, "columns": described(wide)}
    with pytest.raises(UsageError, match="no recording"):
        parse_recording(json.dumps(header).encode() + b"\n", "r")


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode())))
def test_no_file_is_too_strange(noise: bytes) -> None:
    for content in (noise, make_json(2) + noise + b"\n", b"time [s],a [s]\n" + noise + b"\n"):
        try:
            parse_recording(content, "r")
        except UsageError:
            continue


def test_every_column_is_in_one_picture() -> None:
    pictures = choose_pictures(parse_recording(make_json(), "r"))
    told = [(picture.section, picture.title) for picture in pictures]
    assert told == [
        ("Processors", "Where the processors' time goes"),
        ("Disks", "Throughput, sda"),
        ("Disks", "Latency by kind of request, sda"),
        ("Disks", "Requests, flushes among them, sda"),
        ("Disks", "Requests, flushes among them, nvme0n1"),
        ("Memory", "Used with and without page cache"),
        ("Memory", "ZFS's cache (ARC)"),
        ("Memory", "ZFS's cache: reads found in it"),
        ("Memory", "ZFS's cache: accesses, misses among them"),
        ("Pressure", "Share of time in which tasks waited (PSI)"),
        ("Virtual machines", "vCPU time, percent of one core"),
        ("Virtual machines", "web: flushes of the guest beside syncs of the host"),
        ("Virtual machines", f"{HOSTILE}: flushes of the guest beside syncs of the host"),
    ]
    assert pictures[0].stacked and len(pictures[0].lines) == 2
    assert [line.label for line in pictures[-2].lines] == ["guest flush", "host fdatasync"]


def test_an_own_module_has_its_picture() -> None:
    content = make_json(rows=False).replace(b"null", b"7.5")
    pictures = choose_pictures(parse_recording(content, "r"))
    assert (pictures[-1].section, pictures[-1].title, pictures[-1].unit) == ("More", "own", "1/s")
    assert pictures[-1].lines[0].values == [7.5] * 5


def test_long_recordings_are_drawn_as_means_with_their_gaps() -> None:
    count = MAX_WATCHED_POINTS * 3
    values = [math.nan] * 6 + [float(place) for place in range(6, count)]
    times, means = thinned(MetricLine("a", [float(place) for place in range(count)], values))
    assert len(times) == len(means) == MAX_WATCHED_POINTS
    assert means[:3] == [None, None, 7.0] and times[2] == 6000


def test_a_chart_holds_no_nan() -> None:
    spec = watched_chart([MetricLine("a", [1.0, 2.0], [math.nan, 2.0])], "1/s")
    assert json.dumps(spec, allow_nan=False)


class Page(HTMLParser):
    """Texts and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_the_page_shows_all_and_runs_nothing_foreign() -> None:
    recording = parse_recording(make_json(), "r")
    text = render_monitor_page(recording, f"rec {HOSTILE}")
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert page.tags.count("script") == 3 and HOSTILE not in text
    assert page.tags.count("figure") == 13 and page.tags.count("details") == 3
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "5 in 4.0 s" in text or "5 in 4 s" in text


def test_a_recording_without_samples_is_a_page_that_says_so() -> None:
    assert "nothing to draw" in render_monitor_page(parse_recording(make_json(0), "r"), "empty")


def test_summaries_are_of_the_samples_that_tell() -> None:
    recording = parse_recording(make_json(), "r")
    first, last = line_summaries(recording)[0], line_summaries(recording)[-1]
    assert (first.mean, first.least, first.p95, first.most) == (2.0, 0.0, 4.0, 4.0)
    assert (last.name, last.mean) == ("own.hits", None)
    assert row_summaries(recording)[HOSTILE][2].mean == 3.0


def test_parquet_has_the_shape_of_the_csv() -> None:
    recording = parse_recording(make_json(), "r")
    table = parquet.read_table(io.BytesIO(render_parquet(recording)))
    assert table.column_names[:2] == ["time [s]", "cpu.user [percent]"]
    assert table.num_rows == 5 + 4
    rows = table.to_pylist()
    assert [row["vm"] for row in rows[:3]] == ["web", "web", HOSTILE]
    assert rows[0]["own.hits [1/s]"] is None and rows[2]["vm.guest_flush [1/s]"] is None
    assert rows[1]["vm.guest_flush [1/s]"] == 10.0
    alone = parse_recording(make_json(rows=False), "r")
    assert parquet.read_table(io.BytesIO(render_parquet(alone))).num_rows == 5
