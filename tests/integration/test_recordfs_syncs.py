"""sync(2) and syncfs(2) of a program in a recorded folder are in the log.

Requires root, /dev/fuse and the built diskproof-recordfs and diskproof-syncs.
"""

import mmap
import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from diskproof.process.native import require_native
from support.crash_logs import MAPPED, Record
from support.recording import (
    DEADLINE,
    Recording,
    make_places,
    needs_fuse,
    open_folder,
    start_recording,
)

pytestmark = needs_fuse
PAGE = mmap.PAGESIZE
CALLS = """
#include <fcntl.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count > 1)
        return syncfs(open(words[1], O_RDONLY));
    sync();
    return 0;
}
"""
KINDS = {
    "sync": ("sh", "-c", "echo a > a; sync; echo b > b; exit 7"),
    "syncfs": ("sh", "-c", "echo a > a; sync -f a; echo b > b; exit 7"),
    "below": ("sh", "-c", "echo a > a; (sh -c 'sync' & wait); echo b > b; exit 7"),
    "static": ("sh", "-c", "echo a > a; ../call; echo b > b; exit 7"),
    "static-syncfs": ("sh", "-c", "echo a > a; ../call a; echo b > b; exit 7"),
}


def heard(recording: Recording, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in the folder, ended by now."""
    words = [str(require_native("diskproof-syncs")), "--folder", str(recording.mount), "--"]
    return subprocess.run(
        [*words, *command],
        cwd=recording.mount,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def has_ended(process: psutil.Process) -> bool:
    """Also where nobody waits for it."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def done(records: list[Record]) -> list[str]:
    """Writes and syncs, in their order."""
    return [each.kind for each in records if each.kind in ("write", "sync")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sync_stands_where_it_was_called(tmp_path: Path, kind: str) -> None:
    if "static" in kind:
        if not shutil.which("gcc"):
            pytest.skip("there is no gcc")
        (tmp_path / "call.c").write_text(CALLS)
        subprocess.run(["gcc", "-static", "-o", "call", "call.c"], cwd=tmp_path, check=True)
    with start_recording(make_places(tmp_path), "--callers") as recording:
        ended = heard(recording, *KINDS[kind])
        records = recording.finish()
    assert (ended.returncode, ended.stderr) == (7, "")
    assert done(records) == ["write", "sync", "write"]
    (sync,) = [each for each in records if each.kind == "sync"]
    assert sync.by is not None and sync.by[2] == ("call" if "static" in kind else "sync")


def test_syncs_of_other_file_systems_are_none_of_ours(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        ended = heard(recording, "sh", "-c", "echo a > a; sync -f /proc; sync -f nothing; exit 3")
        records = recording.finish()
    assert ended.returncode == 3 and "nothing" in ended.stderr
    assert done(records) == ["write"]


@pytest.mark.parametrize("options", [(), ("--page-cache",)], ids=["direct", "page-cache"])
def test_what_was_stored_in_mapped_pages_is_there_before_the_sync(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    store = (
        "import mmap, os\n"
        "with open('a', 'r+b') as file, mmap.mmap(file.fileno(), 0) as pages:\n"
        "    pages[::4096] = b'X' * 200\n"
        "    os.sync()\n"
        "    open('b', 'w').write('b')\n"
    )
    with start_recording(make_places(tmp_path), *options) as recording:
        (recording.mount / "a").write_bytes(b"o" * 200 * PAGE)
        assert heard(recording, "python3", "-c", store).returncode == 0
        records = recording.finish()
    kinds = [each.kind for each in records if each.kind == "sync" or each.flags & MAPPED]
    assert set(kinds) == {"write", "sync"} and kinds[-1] == "sync"


def test_ends_pass_through_and_nobody_waits_for_what_is_left(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        killed = heard(recording, "sh", "-c", "kill -9 $$")
        missing = heard(recording, "diskproof-no-such-program")
        left = heard(recording, "sh", "-c", "cd /; sleep 100 > /dev/null 2>&1 & echo $!")
        os.kill(int(left.stdout), 9)
        recording.finish()
    assert (killed.returncode, missing.returncode, left.returncode) == (137, 127, 0)
    assert "cannot be run" in missing.stderr


def test_a_command_ends_with_who_watches_it(tmp_path: Path) -> None:
    """kill -9 of diskproof ends what it has started, and no more than that."""
    with start_recording(make_places(tmp_path)) as recording:
        words = [str(require_native("diskproof-syncs")), "--folder", str(recording.mount), "--"]
        command = ["sh", "-c", "echo $$; exec sleep 100"]
        with subprocess.Popen([*words, *command], stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            started = psutil.Process(int(watching.stdout.readline()))
            watching.kill()
        deadline = time.monotonic() + DEADLINE
        while not has_ended(started):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        recording.finish()


def test_where_nobody_may_watch_the_command_runs_all_the_same(tmp_path: Path) -> None:
    """One is watched already."""
    with start_recording(make_places(tmp_path)) as recording:
        inner = [str(require_native("diskproof-syncs")), "--folder", ".", "--"]
        ended = heard(recording, *inner, "sh", "-c", "sync; exit 7")
        records = recording.finish()
    assert ended.returncode == 7 and "count for nothing" in ended.stderr
    assert done(records) == ["sync"], "the outer one hears it"


def test_an_ordinary_users_syncs_are_heard() -> None:
    """Who may set no filter without giving up set-user-ID programs."""
    with open_folder() as folder, start_recording(make_places(folder)) as recording:
        program = shutil.copy(require_native("diskproof-syncs"), folder / "syncs")
        recording.mount.chmod(0o777)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
        words = [*user, program, "--folder", ".", "--", "sh", "-c", "echo a > a; sync; sync -f a"]
        ended = subprocess.run(
            words, cwd=recording.mount, capture_output=True, text=True, timeout=300, check=False
        )
        records = recording.finish()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert done(records) == ["write", "sync", "sync"]


def test_a_folder_that_nobody_records_is_told(tmp_path: Path) -> None:
    words = [str(require_native("diskproof-syncs")), "--folder", str(tmp_path), "--", "true"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 125 and str(tmp_path) in ended.stderr
