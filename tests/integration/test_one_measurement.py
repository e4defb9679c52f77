"""Two measurements at a time would spoil each other, whatever kind they are of.

Requires FUSE, for a program under record is what measures here.
"""

import json
import time
from pathlib import Path

import pytest

from diskproof.errors import DiskproofError
from diskproof.recording.folder import require_fuse
from support.commands import diskproof, left_behind, start_diskproof, write_study

WRITER = "sh -c 'while echo x >> f; sync f; do echo x; sleep 0.1; done'"


def find_obstacle() -> str:
    try:
        require_fuse()
    except DiskproofError as error:
        return f"{error.what}: {error.why}"
    return ""


pytestmark = pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())


def await_running(folder: Path) -> dict[str, object]:
    """The study that runs, as another terminal sees it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = diskproof("status", "--json", cwd=folder)
        running = [each for each in json.loads(done.text or "[]") if each["state"] == "running"]
        if running:
            return dict(running[0])
        time.sleep(0.2)
    pytest.fail(f"nothing was seen to run: {(folder / 'log').read_text()}")


def test_a_running_crash_is_seen_and_nothing_measures_beside_it(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    (tmp_path / "data").mkdir()
    program = ("crash", "--writer", WRITER, "--check", "true", "data")
    with start_diskproof(*program, "--budget", "300s", cwd=tmp_path) as running:
        seen = await_running(tmp_path)
        assert (seen["study"], seen["done"], seen["total"]) == ("crash-data", 0, 3)
        assert seen["pid"] == running.pid and "program" in str(seen["current"])
        for verb in (["run"], ["crash"], ["crash", "flushes"], ["tiles"]):
            refused = diskproof(*verb, study, cwd=tmp_path)
            assert refused.returncode == 3, refused.error_text
            assert f"measured already, by process {running.pid} of" in refused.error_text
        refused = diskproof(*program, cwd=tmp_path)
        assert refused.returncode == 3 and "measured already" in refused.error_text
    after = json.loads(diskproof("status", "--json", cwd=tmp_path).text)
    assert [each["state"] for each in after] == ["done"]
    assert left_behind(tmp_path) == []
