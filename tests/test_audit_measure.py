"""``audit --measure``: the study of a machine's own settings, and the sentences that answer it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.advice.own_study import ALTERNATIVES, own_levels, render_study, study_name
from diskproof.records import Cell
from diskproof.report.advice.own_settings import compare_own
from diskproof.report.read import read_views
from diskproof.store import open_store
from diskproof.study.factors import CACHE_MODES, FACTOR_BY_NAME
from diskproof.study.load import parse_study
from support.commands import diskproof
from support.json_schemas import validate
from support.simulated_stores import fill, simulated_cells

LEVELS = {
    "format": ("raw", "qcow2"),
    "cache": tuple(CACHE_MODES),
    "aio": ("threads", "native", "io_uring"),
    "discard": ("ignore", "unmap"),
    "detect-zeroes": ("off", "on", "unmap"),
    "iothread": ("off", "on"),
    "bus": FACTOR_BY_NAME["bus"].levels,
    "l2-cache-size": ("32M", "1M"),
    "queues": ("4",),
}


@given(st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in LEVELS.items()}))
def test_every_machines_settings_are_a_cell_of_their_study(levels: dict[str, str]) -> None:
    try:
        own = own_levels(levels)
    except ValueError:
        cache = CACHE_MODES.get(levels.get("cache", ""))
        buffered = levels.get("aio") == "native" and cache is not None and not cache.direct
        assert cache is None or buffered or levels.get("detect-zeroes") == "unmap"
        return
    study = parse_study(render_study(study_name("web 1", "scsi0"), "/srv/ä b", own), "x.toml")
    assert study.name == "audit-web-1-scsi0"
    assert study.backings[0].option("path") == "/srv/ä b"
    for factor, level in own.items():
        assert level in dict(study.factors)[factor]
        assert levels.get(factor, level) == level
    wanted = [dict(each.levels) for each in study.only]
    assert {"cache": frozenset({own["cache"]}), "aio": frozenset({own["aio"]})} in wanted
    assert len(ALTERNATIVES) <= len(wanted) <= len(ALTERNATIVES) + 1


def told(
    tmp_path: Path, own: dict[str, str], speed: dict[tuple[str, str], float], blocks: int = 12
) -> str:
    """The sentences on a simulated study, unsafe left to the machine's own cell."""
    factors = {"cache": ("none", "writeback", "unsafe"), "format": ("raw",), "frontend": ("guest",)}
    cells: tuple[Cell, ...] = simulated_cells(factors)
    path = fill(tmp_path / "s.sqlite", cells, blocks=blocks, cv=0.02, speed=speed)
    with open_store(str(path)) as store:
        (view,) = read_views(store, ())
    return "\n".join(compare_own(view, own))


def test_faster_ones_that_keep_are_told_with_an_interval(tmp_path: Path) -> None:
    text = told(tmp_path, {"cache": "writeback"}, {("cache", "none"): 4.0})
    assert "cache=none is " in text and "] as fast" in text
    assert "unsafe" not in text.partition("as fast")[0]


def test_single_runs_prove_nothing(tmp_path: Path) -> None:
    text = told(tmp_path, {"cache": "writeback"}, {("cache", "none"): 4.0}, blocks=1)
    assert "as fast" not in text
    assert "is not told apart from them" in text or "none that keeps is proved faster" in text


def test_own_settings_that_lose_are_never_the_answer(tmp_path: Path) -> None:
    text = told(tmp_path, {"cache": "unsafe"}, {("cache", "unsafe"): 9.0})
    assert "does not carry out flushes" in text
    assert "cache=unsafe is" not in text


def test_what_is_not_told_apart_is_said_so(tmp_path: Path) -> None:
    text = told(tmp_path, {"cache": "none"}, {("cache", "writeback"): 0.001})
    assert "none that keeps is proved faster" in text


@pytest.mark.parametrize("image", ["/dev/vdz", "/nowhere/a.raw", "nbd://10.0.0.1/x"])
def test_what_cannot_be_measured_is_refused(tmp_path: Path, image: str) -> None:
    line = f"qemu-system-x86_64 -name web -drive file={image},format=raw,if=virtio,cache=none\n"
    (tmp_path / "web.sh").write_text(line)
    done = diskproof("audit", "./web.sh", "--measure", cwd=tmp_path)
    assert done.returncode == 2 and "no disk that could be measured" in done.error_text
    assert [path.name for path in tmp_path.iterdir()] == ["web.sh"]


def test_a_budget_stops_it_and_the_image_is_not_touched(tmp_path: Path) -> None:
    image = tmp_path / "a.raw"
    image.write_bytes(b"x" * 4096)
    line = f"qemu-system-x86_64 -name web -drive file={image},format=raw,if=virtio,cache=none\n"
    (tmp_path / "web.sh").write_text(line)
    more = ("--measure", "--budget", "1s", "--json", "--quiet")
    done = diskproof("audit", "./web.sh", *more, cwd=tmp_path)
    assert done.returncode == 1, done.error_text
    told = json.loads(done.text)
    validate("audit-measure", told)
    assert told["own"]["cache"] == "none"
    assert "nothing was made, the budget is too small" in done.error_text
    assert image.read_bytes() == b"x" * 4096
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.raw", "web.sh", "audit-web-virtio0.toml", "diskproof.sqlite"}
    plan = diskproof("plan", "audit-web-virtio0.toml", "--json", cwd=tmp_path)
    assert plan.returncode == 0, plan.error_text
    validate("plan", json.loads(plan.text))
