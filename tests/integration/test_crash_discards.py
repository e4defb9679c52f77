"""``diskproof crash --discard-granularity``: discards that a device carries out in part.

Requires root, /dev/fuse and the native programs.
"""

import json
from pathlib import Path

import pytest

from diskproof.cli import run_command_line
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]
# A journal of two blocks for one record, whose head is written last: full it is done again after a
# crash. It is discarded as soon as the record is where it belongs.
WRITER = """
import ctypes, os
BLOCK, PUNCH_KEEPING_SIZE = 65536, 3
journal, data = (os.open(name, os.O_RDWR) for name in ("journal", "data"))
fallocate = ctypes.CDLL(None, use_errno=True).fallocate
fallocate.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64
for number in (1, 2):
    block = bytes([number]) * BLOCK
    for file, at in ((journal, BLOCK), (journal, 0), (data, 0), (data, BLOCK)):
        os.pwrite(file, block, at)
        os.fdatasync(file)
    assert fallocate(journal, PUNCH_KEEPING_SIZE, 0, 2 * BLOCK) == 0
    print(number, flush=True)
    os.fdatasync(journal)
"""
# %s: what tells that the journal is full.
CHECK = """
import pathlib, sys
for line in sys.stdin:
    folder, promised = map(pathlib.Path, line.rstrip("\\n").split("\\t"))
    journal, data = ((folder / name).read_bytes() for name in ("journal", "data"))
    promises = promised.read_text().split()
    record = journal if %s else data
    whole = not promises or (len(set(record)) == 1 and record[0] >= int(promises[-1]))
    print(0 if whole else 2, flush=True)
"""
HEAD, BOTH_BLOCKS = "any(journal[:65536])", "any(journal[:65536]) and any(journal[65536:])"


@pytest.mark.parametrize(
    ("is_full", "options", "corrupts"),
    [
        (HEAD, [], False),
        (HEAD, ["--discard-granularity", "128KiB"], False),
        (HEAD, ["--discard-granularity", "64KiB"], True),
        (BOTH_BLOCKS, ["--discard-granularity", "64KiB"], False),
    ],
)
def test_a_program_that_takes_a_discard_for_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_full: str,
    options: list[str],
    corrupts: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("disk").mkdir()
    for name in ("journal", "data"):
        Path("disk", name).write_bytes(bytes(2 * 65536))
    Path("writer.py").write_text(WRITER)
    Path("check.py").write_text(CHECK % is_full)
    commands = [f"python3 {tmp_path}/{name}.py" for name in ("writer", "check")]
    argv = ["crash", "--writer", commands[0], "--check", commands[1], "--budget", "60s", "--stays"]
    argv += ["--sector", "65536", *options, "--profiles", "ext4", "disk", "--json"]
    run_command_line(argv)
    rows = {row["fault"]: row for row in json.loads(capsys.readouterr().out)}
    broken = {fault for fault, row in rows.items() if row["verdict"] == "corrupts"}
    # A file system's own hole is metadata.
    assert broken - {"lying-device"} == ({"power"} if corrupts else set())
    known = {65536: "64KiB", 131072: "128KiB", None: ""}
    assert known[rows["power"]["discard_granularity"]] == "".join(options[1:])
    if corrupts:
        told = [cause["text"] for cause in rows["power"]["causes"]["found"]]
        assert told == ["131,072 zeros of journal at 0 are torn"]
        run_command_line(["crash", "reproduce", rows["power"]["run"], "--to", "again"])
        assert "65536/65536:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--discard-granularity", "3000"], "it is a power of two"),
        (["--discard-granularity", "many"], "is not a size"),
        (["--discard-granularity", "512", "--sector", "4096"], "a sector has 4096 bytes"),
    ],
)
def test_a_granularity_that_is_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    argv = ["crash", "--writer", "true", "--check", "true", *options, str(tmp_path)]
    assert run_command_line(argv) == 2
    assert why in capsys.readouterr().err
