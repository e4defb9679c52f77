"""PostgreSQL in a guest that has it: a power cut under ``none`` and under ``unsafe``.

Requires root, /dev/fuse and what builds a guest; the guest with PostgreSQL is built where it is
missing (half a minute).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.guest.ours.build import build_guest, require_guest
from diskproof.records.verdicts import CrashRun
from support.crashing import RULES, assert_nothing_of, execute_real
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]
RECORDS = 24
PG_RULES = replace(
    RULES, records=RECORDS, seconds=200.0, size=96 << 20, states=2, explore_seconds=4.0
)


def test_commits_of_postgres_in_a_guest(tmp_path: Path) -> None:
    """Both recordings at once, a core each: nearly all of it is emulation."""
    assert build_guest(extra="postgres").root != require_guest().root

    def execute(cache: str) -> CrashRun:
        levels = {"frontend": "guest", "bus": "virtio-blk", "format": "raw", "cache": cache}
        (tmp_path / cache).mkdir()
        return execute_real(tmp_path / cache, "postgres", ("power",), PG_RULES, **levels)

    # One after the other: the mask of new files is the process's, and a run's notes have their own.
    safe, unsafe = map(execute, ("none", "unsafe"))
    for run in (safe, unsafe):
        assert run.failure is None and run.counts["acknowledgements"] == RECORDS, run
    assert safe.counts["flushes"] >= RECORDS and unsafe.counts["flushes"] == 0
    (kept,), (lost,) = safe.verdicts, unsafe.verdicts
    assert kept.kept_so_far and kept.states_checked, kept  # two states are not all that decide
    assert (lost.verdict, lost.lost) == ("loses", RECORDS), lost
    assert_nothing_of(tmp_path / "none")
    assert_nothing_of(tmp_path / "unsafe")
