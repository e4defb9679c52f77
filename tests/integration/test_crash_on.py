"""``diskproof crash --on``: programs on real file systems, whose states are mounted and checked.

Requires root, /dev/fuse, loop devices, the programs that make the file systems, and ours.
"""

import fcntl
import json
import os
import signal
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskproof.backings.loop import find_loops
from diskproof.cli import run_command_line
from diskproof.crash import program
from diskproof.crash.program import BROKEN_BEFORE
from diskproof.process.start import find_tool, run
from support.commands import let_everybody_in, start_diskproof
from support.patience import await_true
from support.programs_on import PROGRAMS
from support.recording import needs_fuse
from support.running import find_offspring, mounted

pytestmark = [
    needs_fuse,
    pytest.mark.long,
    pytest.mark.skipif(
        not all(map(find_tool, ("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"))),
        reason="needs e2fsprogs, xfsprogs and btrfs-progs",
    ),
]
_GET_STATUS64 = 0x4C05
_NAME = struct.Struct("@QQQQQIIII64s")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the programs; whatever happens in it, nothing of it is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "data").mkdir()
    yield tmp_path
    assert_clean(tmp_path)


def assert_clean(folder: Path) -> None:
    """No loop device, mount, process or image of a run in a folder is left, soon."""
    await_true(lambda: not [*loops_below(folder), *find_loops(folder)])
    await_true(lambda: str(folder) not in Path("/proc/self/mountinfo").read_text())
    assert find_offspring() == []


def loops_below(folder: Path) -> list[str]:
    """Loop devices that were made over a file there, which may be on a file system of others."""
    found = []
    for entry in Path("/sys/block").glob("loop*/loop"):
        try:
            with Path("/dev", entry.parent.name).open("rb") as device:
                status = fcntl.ioctl(device, _GET_STATUS64, bytes(232))
        except OSError:  # detached meanwhile
            continue
        name = _NAME.unpack_from(status)[-1].partition(b"\0")[0].decode()
        found += [entry.parent.name] if name.startswith(str(folder)[:63]) else []
    return found


def words(
    here: Path, on: str, writer: str, check: str = "check.py", budget: str = "20s"
) -> list[str]:
    commands = f"python3 {here}/{writer}", f"python3 {here}/{check}"
    options = ["--writer", commands[0], "--check", commands[1], "--budget", budget]
    return ["crash", *options, "--on", on, "data"]


def crash(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Exit code, the verdicts by fault (and ``beside``: of a power cut while the file system was
    busy by itself), and what was said."""
    capsys.readouterr()
    code = run_command_line([*arguments, "--json"])
    said = capsys.readouterr()
    rows = {
        "beside" if row["cell"].get("beside") else row["fault"]: row for row in json.loads(said.out)
    }
    return code, rows, " ".join(said.err.split())


def is_kept(row: Mapping[str, Any]) -> bool:
    """Whether nothing was lost; a busy host may not come to all that decides."""
    return row["verdict"] == "keeps" or row["kept_so_far"] is True


@pytest.mark.parametrize("on", ["ext4", "ext4,data=journal", "xfs", "btrfs"])
def test_what_was_synced_is_kept_and_what_was_not_is_lost(
    here: Path, capsys: pytest.CaptureFixture[str], on: str
) -> None:
    _, rows, said = crash(capsys, *words(here, on, "writer.py synced"))
    assert set(rows) == {"power", "qemu-kill", "lying-device", "beside"}
    for row in (rows["power"], rows["beside"]):
        assert is_kept(row) and row["states_checked"] > 1, row
    assert rows["qemu-kill"]["verdict"] == "keeps" and rows["qemu-kill"]["states_total"] == 1
    assert rows["lying-device"]["verdict"] in ("loses", "corrupts")
    assert {row["cell"]["on"] for row in rows.values()} == {on}
    assert "drops flushes" not in said
    assert list(Path("data").iterdir()) == [], "the program works on a copy"

    code, rows, said = crash(capsys, *words(here, on, "writer.py bare", budget="12s"))
    assert (code, rows["power"]["verdict"]) == (1, "loses"), rows["power"]
    assert rows["qemu-kill"]["verdict"] == "keeps", "the kernel outlives the program"
    assert BROKEN_BEFORE not in said


@pytest.mark.parametrize("on", ["ext4", "xfs", "btrfs"])
def test_a_commit_beside_the_program_leaves_names_without_data(
    here: Path, capsys: pytest.CaptureFixture[str], on: str
) -> None:
    """A program of a second that never flushes leaves all or nothing by itself, as no program does
    that runs longer, or with others beside it."""
    _, rows, said = crash(capsys, *words(here, on, "unflushed.py", "missing.py"))
    assert "beside=writeback: the program once more" in said
    beside = {key: rows["beside"][key] for key in ("verdict", "reason", "states_checked")}
    assert beside["verdict"] == "corrupts", beside
    assert is_kept(rows["power"]), rows["power"]
    assert rows["qemu-kill"]["verdict"] == "keeps"
    command = rows["beside"]["reproduce"].split()[1:]
    assert run_command_line([*command, "--json"]) == 1


def test_a_check_that_looks_aside_is_found_out(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most states hold the same after recovery, so that a check of one could do for the others."""
    _, rows, _ = crash(capsys, *words(here, "ext4", "writer.py synced", "aside.py"))
    assert rows["power"]["verdict"] == "loses"
    assert "does not always answer the same" in rows["power"]["reason"], rows["power"]
    assert Path("count").stat().st_size > rows["power"]["states_checked"]


def test_a_loss_is_told_kept_and_made_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows, _ = crash(capsys, *words(here, "ext4,noatime", "writer.py bare", budget="12s"))
    command = rows["power"]["reproduce"].split()[1:]
    assert run_command_line([*command, "--to", "state", "--json"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert made["lost"] == rows["power"]["lost"] or not made["corrupt"]
    magic = Path("state", "disk.raw").read_bytes()[1024 + 56 : 1024 + 58]
    assert magic == b"\x53\xef", "an ext4"
    assert run_command_line(["report", "-o", "page.html"]) == 0
    assert "on=ext4,noatime" in Path("page.html").read_text()
    capsys.readouterr()
    assert run_command_line(["export", "--kind", "verdicts", "-o", "verdicts.csv"]) == 0
    assert "ext4,noatime" in Path("verdicts.csv").read_text()


def test_sync_of_all_counts_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """sync(2), without an fsync of the file."""
    _, rows, said = crash(capsys, *words(here, "ext4", "writer.py sync"))
    assert is_kept(rows["power"]), rows["power"]
    assert "no flush" not in said


@pytest.mark.parametrize(("mode", "verdict"), [("ordered", "keeps"), ("writeback", "corrupts")])
def test_the_order_of_data_and_journal_is_the_mount_options(
    here: Path, capsys: pytest.CaptureFixture[str], mode: str, verdict: str
) -> None:
    """Only in the order of ``data=ordered`` a file is never as long as it was, and empty."""
    on = f"ext4,nodelalloc,data={mode}"
    _, rows, _ = crash(capsys, *words(here, on, "order.py", "whole.py"))
    assert rows["power"]["verdict"] == verdict or (verdict == "keeps" and is_kept(rows["power"]))


@pytest.mark.parametrize("on", ["ext4,barrier=0", "btrfs,nobarrier"])
def test_a_file_system_without_barriers_loses_and_is_marked(
    here: Path, capsys: pytest.CaptureFixture[str], on: str
) -> None:
    code, rows, said = crash(capsys, *words(here, on, "writer.py synced", budget="12s"))
    assert code == 1 and rows["power"]["verdict"] in ("loses", "corrupts")
    assert "drops flushes" in said and f"mounted with {on.partition(',')[2]}" in said


def test_a_program_that_was_broken_before_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("never.py").write_text("import sys; sys.exit(2)\n")
    code, rows, said = crash(
        capsys, *words(here, "ext4", "writer.py synced", "never.py", budget="12s")
    )
    assert code == 1 and {row["verdict"] for row in rows.values()} == {"corrupts"}
    assert BROKEN_BEFORE in said


def test_what_writer_and_check_leave_is_ended(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processes of sessions of their own, with files open in the file system."""
    check = words(here, "ext4", "leaves.py synced", "leaving.py", budget="16s")
    _, rows, _ = crash(capsys, *check)
    assert is_kept(rows["power"]) and rows["power"]["states_checked"] > 0, rows["power"]
    assert rows["qemu-kill"]["verdict"] == "keeps"
    assert not has_left(here)


def has_left(folder: Path) -> bool:
    """Whether a process of the two programs still sleeps."""
    told = ("f = open('left', 'w')", "f = open('held', 'w')", str(folder / "hangs.py"))
    return any(
        word.startswith(told)
        for process in psutil.process_iter(["cmdline"])
        for word in process.info["cmdline"] or ()
    )


def test_a_check_that_hangs_decides_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CHECK_SECONDS", 3.0)
    check = words(here, "ext4", "writer.py synced", "hangs.py", budget="6s")
    code, rows, _ = crash(capsys, *check)
    assert (code, rows["power"]["verdict"]) == (1, "undecided")
    assert "took longer than 3 s" in rows["power"]["reason"]
    await_true(lambda: not has_left(here))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("during", ["writer", "check", "writeback"])
def test_however_it_ends_nothing_stays_mounted(
    here: Path, how: signal.Signals, during: str
) -> None:
    mark = here / "mark"
    pairs = {
        "writer": ("hangs.py", "check.py"),
        "check": ("writer.py synced", "hangs.py"),
        "writeback": ("again.py synced", "check.py"),
    }
    argv = words(here, "ext4", *pairs[during], budget="20s" if during == "writeback" else "200s")
    with start_diskproof(*argv, cwd=here) as running:
        await_true(mark.exists, 300)  # before a second run the first is judged
        assert loops_below(here)
        beside = find_offspring(running.pid)
        assert any("writeback" in each for each in beside) == (during == "writeback")
        os.kill(running.pid, how)
        code = running.wait(60)
    assert code == (-how if how == signal.SIGKILL else 130)
    assert_clean(here)
    await_true(lambda: not has_left(here))


@pytest.mark.parametrize("on", [["--on", "ext4"], []])
def test_a_full_disk_is_a_failure_with_its_name(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on: list[str]
) -> None:
    Path("fills.py").write_text(
        "import os\nwith open('big', 'wb') as stream:\n"
        "    for _ in range(400):\n        stream.write(os.urandom(1 << 20))\n"
        "        os.fsync(stream.fileno())\n"
    )
    with mounted(here / "small", "-t", "tmpfs", "-o", "size=200m", "tmpfs") as small:
        monkeypatch.chdir(small)
        (small / "data").mkdir()
        called = [each for each in words(here, "ext4", "fills.py") if each not in ("--on", "ext4")]
        code, rows, _ = crash(capsys, *called, *on)
        monkeypatch.chdir(here)  # the folder can be unmounted then
    assert code == 1 and {row["verdict"] for row in rows.values()} == {"undecided"}
    assert all(row["reason"].startswith("space: ") for row in rows.values()), rows


# -- what cannot be -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "more", "told"),
    [
        ("zfs", [], "it is ext4, xfs, btrfs"),
        ("", [], "it is ext4, xfs, btrfs"),
        ("ext4,data=sometimes", [], "ext4 of this kernel does not take these options"),
        ("xfs,data=ordered", [], "xfs of this kernel does not take these options"),
        ("ext4,ro", [], "no such mount options"),
        ("ext4,errors=panic", [], "no such mount options"),
        ("f2fs", [], "f2fs can be had in our guest: --in-guest default"),
        ("ext4,a b", [], "no such mount options"),
        ("ext4,,", [], "no such mount options"),
        ("ext4", ["--stays"], "--stays goes with a program in a folder"),
        ("ext4", ["--causes", "3s"], "--causes goes with a program in a folder"),
        ("ext4", ["--old-content"], "--old-content goes with a program in a folder"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(
    here: Path, capsys: pytest.CaptureFixture[str], on: str, more: list[str], told: str
) -> None:
    assert run_command_line([*words(here, on, "writer.py synced"), *more]) == 2
    said = capsys.readouterr().err
    assert told in " ".join(said.split()) and "Traceback" not in said
    assert not Path("diskproof-images").exists()


def as_another(here: Path, *how: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "diskproof", *words(here, "xfs", "writer.py synced")]
    done = run([*how, *argv], timeout=60, cwd=here, check=False)
    return done.returncode, " ".join(done.error_text.split())


def test_without_root_the_way_out_is_told(here: Path) -> None:
    let_everybody_in(here)
    code, said = as_another(here, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert code == 3 and "by this user" in said and "run it as root; without --on" in said


def test_a_missing_mkfs_is_told_with_its_package(here: Path) -> None:
    """In mounts of its own its file is no program."""
    hide = 'mount --bind /dev/null "$(readlink -f "$0")" && exec "$@"'
    mkfs = find_tool("mkfs.xfs")
    assert mkfs
    code, said = as_another(here, "unshare", "--mount", "sh", "-c", hide, mkfs)
    assert code == 3 and "mkfs.xfs is not installed (Debian: xfsprogs)" in said


def test_a_torn_superblock_is_no_fault_of_the_program(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ext4 takes it that 1 KiB is written whole: torn between sectors of 512 bytes, its superblock
    is refused, whatever the program does. So that is not the disk where none is named."""
    (here / "torn.sh").write_text(
        "for i in 1 2 3; do echo $i >new; sync new; mv new conf; sync .; echo $i; done"
    )
    check, on = ["--writer", f"sh {here}/torn.sh", "--check", "true"], ["--on", "ext4", "data"]
    _, rows, _ = crash(capsys, "crash", *check, "--budget", "20s", *on)
    assert is_kept(rows["power"])
    _, rows, _ = crash(capsys, "crash", *check, "--budget", "120s", "--sector", "512", *on)
    assert rows["power"]["verdict"] == "corrupts", rows["power"]
    assert "cannot be mounted" in rows["power"]["reason"]
