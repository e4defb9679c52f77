"""What of a guest's disk stays in the host's page cache. Requires the built guest and QEMU."""

import os
from pathlib import Path

import pytest

from diskproof.process.start import run
from diskproof.records import BackingSpec
from diskproof.study.load import parse_study
from support.reclaim import stopped_reclaim
from support.running import execute

STUDY = '[workloads.cache-life]\nsettle = "500ms"\n[protocol]\nsize = "32MiB"\n'


def read_figures(images: Path, on: BackingSpec | None = None, **levels: str) -> dict[str, float]:
    spec = parse_study(STUDY).workloads[0]
    with stopped_reclaim():
        record = execute(images, spec, on=on, frontend="guest", format="raw", **levels)
    assert record.failure is None
    return {metric.name: metric.value for metric in record.metrics}


@pytest.mark.parametrize(("cache", "kept"), [("writeback", 100.0), ("none", 0.0)])
def test_a_file_keeps_its_pages_where_the_cache_mode_uses_them(
    tmp_path: Path, cache: str, kept: float
) -> None:
    told = read_figures(tmp_path / "images", cache=cache)
    for name in ("cached_by_reading", "left_after_reset", "left_after_restart"):
        assert told[name] == pytest.approx(kept, abs=1)
    assert told["first_read"] > 0 and told["second_read"] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a loop device")
def test_a_device_drops_its_pages_when_nobody_has_it_open_any_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(32 << 20))
    loop = ["losetup", "--find", "--show", str(tmp_path / "file")]
    device = run(loop, timeout=30).text.strip()
    on = BackingSpec("here", "device", (("path", device),))
    try:
        told = read_figures(tmp_path / "images", on, cache="writeback")
    finally:
        run(["losetup", "--detach", device], timeout=30)
    for name in ("cached_by_reading", "left_after_reset"):
        assert told[name] == pytest.approx(100, abs=1)
    assert told["left_after_restart"] == 0
