"""dd's and iozone's manners on the bare backing. Requires fio, dd, qemu-img, the monitor."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from diskproof.records import RunRecord, WorkloadSpec
from diskproof.study.load import parse_study
from support.reclaim import stopped_reclaim
from support.running import artefacts, execute
from support.volumes import backing, folder


def make(name: str, size: str = "32MiB", **keys: str) -> WorkloadSpec:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    return parse_study(f'[workloads.{name}]\n{lines}[protocol]\nsize = "{size}"\n').workloads[0]


def metrics(record: RunRecord) -> dict[str, float]:
    assert record.failure is None
    return {metric.name: metric.value for metric in record.metrics}


@pytest.mark.parametrize("name", ["dd-write", "dd-read"])
def test_dd(tmp_path: Path, name: str) -> None:
    record = execute(tmp_path / "images", make(name), frontend="host")
    told = metrics(record)
    assert told["bandwidth"] == pytest.approx(32 / told["seconds"])
    (rule,) = [check for check in record.checks if check.name == "2 x RAM"]
    assert "32 MiB" in rule.effective and "the page cache can hold it" in rule.effective


def test_iozone(tmp_path: Path) -> None:
    keys = {"min_file": "64K", "max_file": "128K", "max_record": "8K", "threads": "2"}
    record = execute(tmp_path / "images", make("iozone", **keys), frontend="host")
    told = metrics(record)
    figures = {name for name in told if "/" in name}
    assert len(figures) == 2 * 2 * 7
    assert {"write 4K/64K", "mixed 8K/128K"} <= figures
    assert all(told[name] > 0 for name in figures)
    flushes = [
        job["sync"]["total_ios"]
        for job in json.loads(artefacts(record)["fio.json"])["jobs"]
        if job["jobname"].startswith("flush")
    ]
    assert flushes == [1] * (2 * 2 * 4 * 2)  # four tests write, by two threads
    smallest = min(told[name] for name in figures)
    assert smallest < told["mean_bandwidth"] < max(told[name] for name in figures)


def test_files_that_do_not_fit_are_a_clear_failure(tmp_path: Path) -> None:
    spec = make("iozone", size="16MiB", max_file="16M")
    record = execute(tmp_path / "images", spec, frontend="host")
    assert record.failure is not None and record.failure.kind == "workload"
    assert "iozone's files need" in record.failure.what and "max_file" in record.failure.hint


def test_first_write_and_rewrite(tmp_path: Path) -> None:
    levels = {"frontend": "daemon", "format": "qcow2", "cache": "none"}
    told = metrics(execute(tmp_path / "images", make("first-write", parts="4"), **levels))
    assert told["rewrite_ratio"] == pytest.approx(told["rewrite"] / told["first_write"])
    for name in ("first_write", "rewrite"):
        parts = [told[f"{name} {end} %"] for end in (25, 50, 75, 100)]
        assert min(parts) <= told[name] <= max(parts)


def test_more_parts_than_writes_fit_is_a_clear_failure(tmp_path: Path) -> None:
    spec = make("first-write", size="16MiB", parts="100", bs="1M")
    record = execute(tmp_path / "images", spec, frontend="host")
    assert record.failure is not None and "100 parts" in record.failure.what


def test_a_skewed_re_read_tells_how_the_cache_warms_up(tmp_path: Path) -> None:
    levels = {"frontend": "daemon", "format": "raw", "cache": "writeback"}
    record = execute(tmp_path / "images", make("zipf-read", runtime="3s"), **levels)
    told = metrics(record)
    assert told["cold_iops"] > 0 and told["warm_iops"] > 0
    (course,) = [each for each in record.series if (each.source, each.name) == ("fio", "iops")]
    gaps = [b - a for a, b in pairwise((0.0, *course.times))]
    assert 0.05 < min(gaps) < 0.15, course.times  # ends of samples of 0.1 s, or of more without any
    assert min(course.values) <= told["warm_iops"] <= max(course.values)
    (cold,) = [check for check in record.checks if check.name == "page cache"]
    assert cold.ok


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
@pytest.mark.parametrize("cache", ["writeback", "none"])
def test_what_a_cache_keeps_when_a_scan_floods_it(tmp_path: Path, cache: str) -> None:
    """On a loop device that nothing else reads, so that its counter is that of the run."""
    on = backing("filesystem", folder(tmp_path), size=str(192 << 20))
    levels = {"frontend": "daemon", "format": "raw", "cache": cache}
    with stopped_reclaim():
        record = execute(tmp_path / "images", make("cache-flood"), on=on, **levels)
    told = metrics(record)
    assert {"cold_iops", "warm_iops", "flooded_iops", "scan_bandwidth"} <= {*told}
    (counted,) = [each.effective for each in record.checks if each.name.startswith("reads that")]
    assert counted.startswith("reads of loop")
    assert "in_arc" not in told
    shares = [told[f"{name}_cached"] for name in ("cold", "warm", "flooded")]
    if cache == "none":
        assert shares == [0, 0, 0] and told["in_page_cache"] == 0
    else:  # the host's memory holds all of the disk
        assert 50 < shares[0] < 95 and min(shares[1:]) > 99 and told["kept"] > 99
        assert told["in_page_cache"] == pytest.approx(20_000 * (1 - shares[0] / 100) / 256, 0.1)
