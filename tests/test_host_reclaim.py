"""A kernel that takes memory before it is needed, in folders that look like sysfs."""

import os
import tempfile
from pathlib import Path

import pytest

from diskproof.host.reclaim import examine_reclaim, find_reclaim

THREADS = "kernel/mm/damon/admin/kdamonds"
MODULE = "module/damon_reclaim/parameters"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def make_thread(sys: Path, number: int = 0, state: str = "on", action: str = "pageout") -> Path:
    context = sys / THREADS / str(number) / "contexts/0"
    write(sys / THREADS / str(number) / "state", state)
    write(context / "monitoring_attrs/intervals/aggr_us", "5000000")
    write(context / "schemes/0/action", action)
    write(context / "schemes/0/access_pattern/age/min", "6")
    return sys


def make_module(sys: Path, enabled: str = "Y") -> Path:
    write(sys / MODULE / "enabled", enabled)
    write(sys / MODULE / "min_age", "120000000")
    return sys


def test_a_scheme_that_pages_out_is_told_with_its_time_and_the_way_out(tmp_path: Path) -> None:
    found = examine_reclaim(make_thread(tmp_path))
    assert found.ok == "limited"
    assert "what nothing touched for 30 s (DAMON)" in found.what
    assert found.hint.endswith(f"echo off | sudo tee {tmp_path / THREADS}/0/state")


def test_the_module_is_told_too(tmp_path: Path) -> None:
    found = examine_reclaim(make_module(tmp_path))
    assert "for 2 min 0 s" in found.what and found.hint.endswith("parameters/enabled")


def test_the_shortest_of_several_counts(tmp_path: Path) -> None:
    make_module(make_thread(tmp_path))
    assert [each.seconds for each in find_reclaim(tmp_path)] == [30, 120]
    found = examine_reclaim(tmp_path)
    assert "for 30 s" in found.what
    assert "kdamonds/0/state; echo N | sudo tee" in found.hint


def test_the_way_out_names_what_is_at_work_only(tmp_path: Path) -> None:
    found = examine_reclaim(make_module(make_thread(tmp_path, state="off")))
    assert found.hint.endswith("parameters/enabled") and "kdamonds" not in found.hint


@pytest.mark.parametrize(("state", "action"), [("off", "pageout"), ("on", "stat")])
def test_what_only_looks_takes_nothing(tmp_path: Path, state: str, action: str) -> None:
    make_module(make_thread(tmp_path, state=state, action=action), "N")
    assert examine_reclaim(tmp_path).ok == "yes"


def test_a_kernel_without_it(tmp_path: Path) -> None:
    assert examine_reclaim(tmp_path).ok == "yes"


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes somebody else")
@pytest.mark.parametrize("closed", [f"{THREADS}/0/state", f"{MODULE}/enabled"])
def test_an_ordinary_user_is_told_that_root_sees_more(closed: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        sys = make_module(make_thread(Path(name)))
        (sys / closed).chmod(0o600)
        sys.chmod(0o755)
        child = os.fork()
        if not child:
            told = ""
            try:
                os.setresuid(65534, 65534, 65534)
                told = examine_reclaim(sys).what
            finally:
                os._exit(0 if "only root" in told else 1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads DAMON's files")
def test_this_kernel_is_read() -> None:
    assert (examine_reclaim().ok == "limited") == bool([*find_reclaim()])
