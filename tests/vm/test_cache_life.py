"""What of a guest's disk stays in the host's page cache. Requires the built guest and QEMU."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskproof.study import parse_study
from running import execute

STUDY = '[workloads.cache-life]\nsettle = "500ms"\n[protocol]\nsize = "32MiB"\n'


@pytest.mark.parametrize(("cache", "kept"), [("writeback", 100.0), ("none", 0.0)])
def test_a_file_keeps_its_pages_where_the_cache_mode_uses_them(
    tmp_path: Path, cache: str, kept: float
) -> None:
    spec = parse_study(STUDY).workloads[0]
    levels = {"frontend": "guest", "format": "raw", "cache": cache}
    record = execute(tmp_path / "images", spec, **levels)
    assert record.failure is None
    told = {metric.name: metric.value for metric in record.metrics}
    for name in ("cached_by_reading", "left_after_reset", "left_after_restart"):
        assert told[name] == pytest.approx(kept, abs=1)
    assert told["first_read"] > 0 and told["second_read"] > 0
