"""diskproof-states for an ordinary user: fusermount3 shows it the states, QEMU opens them there.

Requires root (to become that user), /dev/fuse, fusermount3, QEMU and the built native programs.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.process.cage import QEMU_CAGE, confine_args
from diskproof.process.native import require_native
from diskproof.process.start import run
from integration.test_recordfs_user import BECOME, USER, device
from integration.test_states import left_behind, record_qcow2
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.usefixtures(device.__name__)]
LOSES_WITHOUT_RIGHTS = (
    "test -e disk && grep -q 'NoNewPrivs:.1' /proc/self/status && echo 1 && exit 1"
)


@pytest.fixture
def room() -> Iterator[Path]:
    """Pytest's own folders let nobody else in, nor may the folder of the programs."""
    with tempfile.TemporaryDirectory(prefix="states-user-") as name:
        for program in ("diskproof-states", "diskproof-confine"):
            shutil.copy(require_native(program), name)
        yield Path(name)


def explore_as_user(room: Path, cache: str, check: dict[str, object]) -> dict[str, object]:
    """The explorer's last line; log and base are the user's."""
    places = record_qcow2(room, cache)
    for path in (room, places.log, places.base, places.base / "disk"):
        os.chown(path, USER, USER)
    walls = confine_args(
        str(room / "diskproof-confine"), QEMU_CAGE, files=True, parent=None, user=None, groups=()
    )
    request = {"log": str(places.log), "base": str(places.base), "fault": "power", "sector": 512}
    more = {"check": check, "budget": {"states": 400, "seconds": 60}, "confined": {"argv": walls}}
    argv = [*BECOME, "env", f"TMPDIR={room}", str(room / "diskproof-states"), "explore"]
    told = run(argv, timeout=300, stdin=json.dumps(request | more).encode(), cwd=Path("/"))
    assert not [line for line in left_behind() if str(room) in line]
    assert not list(room.glob("diskproof-states-*"))
    return dict(json.loads(told.text.splitlines()[-1]))


@pytest.mark.parametrize(("no_flush", "verdict"), [("off", "keeps"), ("on", "loses")])
def test_disks_that_only_qemu_can_read_are_judged(room: Path, no_flush: str, verdict: str) -> None:
    cache = f"cache.direct=off,cache.no-flush={no_flush}"
    check: dict[str, object] = {"kind": "ledger", "target": "disk", "format": "qcow2"}
    summary = explore_as_user(room, cache, check)
    assert summary["verdict"] == verdict, summary


def test_a_check_is_started_once_nothing_more_can_be_gained(room: Path) -> None:
    argv = ["sh", "-c", f"{LOSES_WITHOUT_RIGHTS}; exit 0"]
    check: dict[str, object] = {"kind": "command", "argv": argv}
    summary = explore_as_user(room, "cache.direct=off,cache.no-flush=off", check)
    assert summary["verdict"] == "loses", summary
