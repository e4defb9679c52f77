"""The CPU time of ksmd."""

import os
from pathlib import Path

from diskproof.host.ksm import ksmd_series, read_ksmd_seconds

TICKS = os.sysconf("SC_CLK_TCK")


def write_stat(proc: Path, pid: int, name: str, parent: int, user: int, system: int) -> None:
    (proc / str(pid)).mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 9, str(user), str(system), *["0"] * 30]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_only_the_kernels_thread_counts(tmp_path: Path) -> None:
    write_stat(tmp_path, 9, "ksmd", 1, 99 * TICKS, 0)  # a program that calls itself so
    write_stat(tmp_path, 12, "a) ksmd (b", 2, 99 * TICKS, 0)
    (tmp_path / "13").mkdir()  # has just ended
    assert read_ksmd_seconds(tmp_path) is None
    write_stat(tmp_path, 37, "ksmd", 2, TICKS, 3 * TICKS)
    assert read_ksmd_seconds(tmp_path) == 4.0


def test_its_cost_is_in_percent_of_one_cpu() -> None:
    (series,) = ksmd_series(4.0, 6.0, 8.0)
    assert (series.name, series.times, series.values) == ("ksm.cpu", (8.0,), (25.0,))
    assert ksmd_series(None, 6.0, 8.0) == ksmd_series(4.0, None, 8.0) == ()
    assert ksmd_series(4.0, 6.0, 0.0) == ()
