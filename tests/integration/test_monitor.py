"""The monitor on this host: as dstat's users type it, into files, to its ends."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.memory_disks import start_memory_disk
from support.watching import DEADLINE, argv, monitor, watching

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for mounts")


def test_as_users_of_dstat_type_it() -> None:
    done = monitor("-cdngy", "0.05", "3")
    titles, labels, *lines = done.text.splitlines()
    assert [title.strip("-") for title in titles.split()] == [
        *("total-cpu-usage", "dsk/total", "net/total", "paging", "system")
    ]
    assert labels.split("|")[0].split() == ["usr", "sys", "idl", "wai", "stl", "tru"]
    assert len(lines) == 3
    assert {len(line) for line in [titles, labels, *lines]} == {len(titles)}
    assert monitor("-a", "0.01", "1").text.splitlines()[0] == titles
    assert monitor("0.01", "1").text.splitlines()[0] == titles


def test_modules_come_in_the_order_in_which_they_are_typed() -> None:
    header = monitor("-m", "--flush", "-lc", "--csv", "0.01", "1").text.splitlines()[0]
    names = [name.partition(".")[0] for name in header.split(",")]
    assert list(dict.fromkeys(names)) == ["time [s]", "memory", "disk", "load", "cpu"]


def test_csv_has_one_header_with_unique_names_and_units() -> None:
    every = [name for name in modules() if name not in ("vm", "program", "process")]
    text = monitor("--csv", *(f"--{name}" for name in every), "-f", "0.02", "3").text
    header, *rows = csv.reader(io.StringIO(text))
    assert len(rows) == 3 and len(set(header)) == len(header)
    assert all(re.fullmatch(r"\S+ \[\S+\]", name) for name in header), header
    assert all(float(field) >= 0 for row in rows for field in row if field)


def test_csv_loads_in_pandas_without_options() -> None:
    pandas = pytest.importorskip("pandas")
    text = monitor("--csv", "-", "-cmx", "0.02", "4").text
    frame = pandas.read_csv(io.StringIO(text))
    assert frame.shape[0] == 4
    assert all(kind in ("float64", "int64") for kind in frame.dtypes.astype(str))
    assert (frame["cpu.true_load [percent]"].dropna() <= 100).all()


def modules() -> list[str]:
    """Names in the table that --list prints."""
    return re.findall(r"^ ?-?.?,? +--([\w-]+) ", monitor("--list").text, re.MULTILINE)


def test_the_list_names_every_module_and_its_columns() -> None:
    text = monitor("--list").text
    assert {"cpu", "disk", "disk-ext", "flush", "psi", "ksm", "net", "int", "self"} <= {*modules()}
    assert "arc.hit [percent]" in text
    assert "disk.flush_await [ms]" in text and "cpu.true_load [percent]" in text


def test_json_lines() -> None:
    header, *samples = map(
        json.loads, monitor("--json", "-c", "--self", "0.02", "3").text.splitlines()
    )
    assert (header["type"], header["protocol"], header["interval_ms"]) == ("header", 1, 20)
    names = [column["name"] for column in header["columns"]]
    assert names[-2:] == ["monitor.cpu", "monitor.rss"]
    assert len(samples) == 3
    for sample in samples:
        assert sample["type"] == "sample" and len(sample["values"]) == len(names)
        assert abs(sample["time"] - time.time()) < DEADLINE
        assert 0 < sample["values"][-1] < 10, "MiB of the monitor itself"


def test_a_file_beside_the_display_is_written_anew(tmp_path: Path) -> None:
    table = tmp_path / "run.csv"
    table.write_text("something older and longer than what comes\n" * 99)
    done = monitor("-c", "--output", table, "0.01", "2")
    assert "total-cpu-usage" in done.text
    assert len(table.read_text().splitlines()) == 3
    lines = tmp_path / "run.json"
    monitor("-c", "--json", lines, "--csv", table, "0.01", "2")
    assert len(lines.read_text().splitlines()) == 3


def test_its_own_cost_is_told_at_the_end() -> None:
    said = monitor("-c", "0.01", "5").error_text
    cost = re.fullmatch(
        r"diskproof-monitor: 5 samples in [\d.]+ s; "
        r"it took ([\d.]+) % of one CPU and ([\d.]+) MiB itself\n?",
        said,
    )
    assert cost, said
    assert 0 < float(cost[2]) < 10
    assert monitor("-cq", "0.01", "1").error_text == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-D", "no-such-disk"], "no-such-disk"),
        (["-N", "eth77"], "eth77"),
        (["-C", "999"], "999"),
        (["-i", "-I", "no-such-line"], "no-such-line"),
        (["-c", "0"], "seconds are possible"),
        (["-c", "nan"], "seconds are possible"),
        (["-c", "1", "0"], "COUNT"),
        (["-c", "--csv", "--json"], "standard output"),
        (["-c", "--csv", "/nonexistent/x.csv"], "/nonexistent/x.csv"),
        (["--no-such-module"], "--no-such-module"),
        (["--process"], "--pid"),
    ],
)  # fmt: skip
def test_wrong_usage(arguments: list[str], told: str) -> None:
    done = monitor(*arguments, check=False)
    assert done.returncode == 2
    assert told in done.error_text and "panicked" not in done.error_text


@needs_root
def test_a_full_disk_ends_it_and_leaves_whole_lines(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path / "full", "size=4k") as folder:  # room for a page
        done = monitor("-cdngy", "--csv", folder / "run.csv", "0.01", "900", check=False)
        assert done.returncode == 1
        assert "No space left" in done.error_text and "run.csv" in done.error_text
        text = (folder / "run.csv").read_text()
    assert text.endswith("\n")
    header, *rows = csv.reader(io.StringIO(text))
    assert rows and {len(row) for row in rows} == {len(header)}
    assert f"{len(rows)} samples were written" in done.error_text


def test_a_full_device_as_standard_output() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            argv("-c", "0.01", "5"), stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE
        )
    assert done.returncode == 1 and b"No space left" in done.stderr


@pytest.mark.parametrize("every", ["0.01", "3600"])
def test_a_reader_that_has_seen_enough_ends_it(every: str) -> None:
    with watching("-c", "--csv", every) as watched:
        watched.next_line()
        assert watched.child.stdout is not None
        watched.child.stdout.close()
        assert watched.child.wait(DEADLINE) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_the_end_of_a_watch_without_end_and_an_interruption_of_a_count(
    number: int,
) -> None:
    for more, code in (([], 0), (["100000"], 128 + number)):
        with watching("-c", "0.02", *more) as watched:
            for _ in range(3):
                watched.next_line()
            watched.child.send_signal(number)
            assert (ended := watched.end())[0] == code
            assert "MiB itself" in ended[1]


def test_a_stopped_monitor_makes_no_burst_of_lines_afterwards() -> None:
    with watching("-c", "--csv", "0.05") as watched:
        watched.next_line()
        before = watched.next_row()
        watched.child.send_signal(signal.SIGSTOP)
        time.sleep(0.6)
        watched.child.send_signal(signal.SIGCONT)
        rows = [before]
        while len(rows) < 2 or (rows[-1][0] or 0.0) - (rows[-2][0] or 0.0) <= 0.5:
            rows.append(watched.next_row())
        rows += [watched.next_row() for _ in range(3)]
    times = [row[0] or 0.0 for row in rows]
    gaps = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert max(gaps) > 0.5
    after = gaps[gaps.index(max(gaps)) + 1 :]
    assert sum(after[1:]) > 0.04 * len(after[1:]), gaps
    assert all(value is None or 0 <= value <= 100 for row in rows for value in row[1:])


def test_ten_milliseconds() -> None:
    rows = list(csv.reader(io.StringIO(monitor("-cdy", "--csv", "0.01", "60").text)))[1:]
    times = [float(row[0]) for row in rows]
    gaps = sorted(b - a for a, b in zip(times, times[1:], strict=False))
    assert len(gaps) == 59
    # Some of them on the grid, however busy the machine is.
    assert gaps[0] < 0.015, gaps
