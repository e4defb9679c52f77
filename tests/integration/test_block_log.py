"""A recorded disk as a log of dm-log-writes and back, against the explorer's and QEMU's own.

Requires the native programs; what runs ``crash`` also root, /dev/fuse and qemu-io.
"""

import json
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.cli import run_command_line
from diskproof.crash.block_log import export_log
from diskproof.crash.block_log_import import find_disk, import_log
from diskproof.errors import RunFailure, UsageError
from diskproof.process.native import require_native
from diskproof.recording.dm_log_writes import read_entries, start_log
from diskproof.recording.log import read_frames
from support.crash_logs import DATA_ONLY, DSYNC, FRAME, KINDS, PUNCH_HOLE, SYNC, read_log
from support.recording import needs_fuse

SECTORS = 8
SIZE = SECTORS * 512
KEEP_SIZE = 1
MARK = "the end"
DISK = "disk.raw"


@dataclass(frozen=True)
class Step:
    """A record of the disk, or a promise (``kind`` acknowledge); ``lasts`` of them end while it
    goes on."""

    kind: str
    payload: bytes
    flags: int = 0
    lasts: int = 0


def steps() -> st.SearchStrategy[list[Step]]:
    places = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 1500)).map(
        lambda pair: (pair[0], min(pair[1], SIZE - pair[0]))
    )
    writes = st.builds(
        lambda place, byte, flags, lasts: Step(
            "write", struct.pack("<Q", place[0]) + bytes([byte]) * place[1], flags, lasts
        ),
        places,
        st.integers(1, 255),
        st.sampled_from([0, 0, 0, DSYNC, DSYNC | SYNC]),
        st.integers(0, 3),
    )
    holes = st.builds(
        lambda place, lasts: Step(
            "fallocate", struct.pack("<IQQ", KEEP_SIZE | PUNCH_HOLE, *place), 0, lasts
        ),
        places,
        st.integers(0, 3),
    )
    flushes = st.builds(
        lambda flags, lasts: Step("fsync", b"", flags, lasts),
        st.sampled_from([0, DATA_ONLY]),
        st.integers(0, 3),
    )
    promises = st.just(Step("acknowledge", b"promised"))
    return st.lists(st.one_of(writes, writes, holes, flushes, promises), max_size=14)


def write_log(path: Path, base: bytes, taken: Sequence[Step]) -> list[int]:
    """A crash log of a disk; gives the numbers of its promises. A step that lasts began before
    the steps ahead of it ended, which the log tells by its times only."""

    def entry(parent: int, mode: int, size: int, name: bytes) -> bytes:
        head = struct.pack("<QIIIIQ", parent, mode, 0, 0, 0, size)
        return head + struct.pack("<H", len(name)) + name

    promised = []
    with path.open("wb") as stream:
        head = struct.pack("<8sIIIIQQQ12s", b"dpcrash\n", 1, 512, 4096, 0, 0, 0, 0, bytes(12))
        stream.write(head + struct.pack("<I", zlib.crc32(head)))
        first = Step("base", entry(0, 0o40755, 0, b""))
        second = Step("base", entry(1, 0o100644, len(base), DISK.encode()))
        for number, step in enumerate([first, second, *taken, Step("end", b"")], 1):
            file = {"base": number, "acknowledge": 0, "end": 0}.get(step.kind, 2)
            begin = max(0, 10 * (number - step.lasts) - 5)
            kind = KINDS.index(step.kind) + 1
            fields = len(step.payload), kind, step.flags, 0, number, begin, 10 * number, file, 0
            frame = FRAME.pack(0, zlib.crc32(step.payload), *fields)[4:]
            stream.write(struct.pack("<I", zlib.crc32(frame)) + frame + step.payload)
            stream.write(bytes(-len(step.payload) % 8))
            promised += [number] if step.kind == "acknowledge" else []
    return promised


def replayed(log: Path) -> Iterator[tuple[bytes, bytes]]:
    """Each mark with the disk as it is then, by the kernel's documentation alone: one sector with
    the superblock, one with each entry, its data behind it."""
    text, disk = log.read_bytes(), bytearray(SIZE)
    magic, version, count, sector = struct.unpack_from("<QQQI", text)
    assert (magic, version, sector) == (0x6A736677736872, 1, 512)
    at = sector
    for _ in range(count):
        first, sectors, flags, length = struct.unpack_from("<QQQQ", text, at)
        start, stop = first * sector, (first + sectors) * sector
        if flags & 8:
            yield text[at + 32 :][:length], bytes(disk)
        elif flags & 4:
            disk[start:stop] = bytes(stop - start)
        else:
            disk[start:stop] = text[at + sector :][: stop - start]
        at += sector + (0 if flags & 4 else stop - start)
    assert at == len(text)


def show(room: Path, log: Path, base: Path, cut: int, choice: str) -> bytes:
    """The disk in a state, as the explorer makes it."""
    with tempfile.TemporaryDirectory(dir=room) as name:
        target = Path(name) / "state"
        program = str(require_native("diskproof-states"))
        state = f"power:512:{cut}:{choice}"
        argv = [program, "show", str(log), str(base), state, "--to", str(target)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        return (target / DISK).read_bytes().ljust(SIZE, b"\0")


@settings(max_examples=25)
@given(steps(), st.sampled_from([bytes(SIZE), b"\x07" * SIZE, b"\x07" * 700 + bytes(SIZE - 700)]))
def test_up_to_a_mark_there_is_what_the_explorer_calls_safe(taken: list[Step], base: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        for folder in ("base", "copy"):
            (room / folder).mkdir()
            (room / folder / DISK).write_bytes(base)
        promised = write_log(room / "crash.log", base, taken)
        made = export_log(room / "crash.log", room / "copy", None, room / "block.log")
        begun, *marks, ended = replayed(room / "block.log")
        assert not differ(begun[1], base)
        assert made.promises == len(promised) == len(marks)
        for cut, (text, disk) in zip(promised, marks, strict=True):
            assert text == b"promised"
            assert not differ(disk, show(room, room / "crash.log", room / "base", cut, "nothing"))
        last = len(taken) + 3  # two records of the folder stand before, one after
        assert not differ(
            ended[1], show(room, room / "crash.log", room / "base", last, "everything")
        )

        # Back again, each promise has the same disk, and so has the end.
        (room / "base" / DISK).write_bytes(bytes(SIZE))
        import_log(room / "block.log", room / "base" / DISK, room / "again.log", MARK)
        cuts = find_promises(room / "again.log")
        for cut, (_, disk) in zip(cuts, marks, strict=False):
            assert not differ(disk, show(room, room / "again.log", room / "base", cut, "nothing"))
        again = show(room, room / "again.log", room / "base", cuts[-1], "everything")
        assert not differ(ended[1], again)


def differ(one: bytes, other: bytes) -> list[tuple[int, int, int]]:
    """Where two disks differ: the place and both bytes."""
    pairs = enumerate(zip(one, other, strict=True))
    return [(at, mine, yours) for at, (mine, yours) in pairs if mine != yours]


def find_promises(log: Path) -> list[int]:
    kinds = [record.kind for record in read_log(log)]
    return [number for number, kind in enumerate(kinds, 1) if kind == "acknowledge"]


def test_what_is_no_log_or_a_damaged_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    disk = tmp_path / "base" / DISK
    disk.write_bytes(b"\x07" * SIZE)
    steps = [Step("write", struct.pack("<Q", 0) + b"x" * 512), Step("fsync", b"")]
    write_log(tmp_path / "crash.log", disk.read_bytes(), steps)
    good = tmp_path / "good.log"
    export_log(tmp_path / "crash.log", tmp_path / "base", DISK, good)
    text = good.read_bytes()
    broken = {
        "is no log": b"x" * 600,
        "has version 2": text[:8] + struct.pack("<Q", 2) + text[16:],
        "sectors of 7 bytes": text[:24] + struct.pack("<I", 7) + text[28:],
        "ends before entry": text[: 512 + 512 + SIZE],
        "ends within entry": text[: 512 + 512 + SIZE // 2],
        "beyond any disk": text[:512] + struct.pack("<Q", 1 << 60) + text[520:],
        "larger than its sector": text[:528] + struct.pack("<QQ", 8, 1 << 40) + text[544:],
    }
    for number, (why, content) in enumerate(broken.items()):
        bad = tmp_path / f"{number}.log"
        bad.write_bytes(content)
        with pytest.raises(UsageError) as told:
            import_log(bad, disk, tmp_path / f"{number}.crash", MARK)
        assert why in str(told.value)
    disk.write_bytes(bytes(512))
    with pytest.raises(UsageError, match="larger disk"):
        import_log(good, disk, tmp_path / "small.crash", MARK)
    with pytest.raises(UsageError, match="no file of the recording"):
        export_log(tmp_path / "crash.log", tmp_path / "base", "other", tmp_path / "no.log")
    for target in (tmp_path / "nowhere" / "log", Path("/proc/log")):
        with pytest.raises(UsageError, match="cannot be written"):
            export_log(tmp_path / "crash.log", tmp_path / "base", DISK, target)
    cut = tmp_path / "cut.log"
    (tmp_path / "crash.log").write_bytes(b"x" * 200)
    with pytest.raises(RunFailure), start_log(cut):
        list(read_frames(tmp_path / "crash.log"))
    assert not cut.exists()
    with pytest.raises(UsageError, match="does not hold one file"):
        find_disk(tmp_path)


@given(st.binary(max_size=2048), st.integers(0, 600), st.booleans())
def test_foreign_bytes_are_read_or_refused(noise: bytes, at: int, headed: bool) -> None:
    head = struct.pack("<QQQI", 0x6A736677736872, 1, 3, 512).ljust(512, b"\0") if headed else b""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "log"
        path.write_bytes(head[:at] + noise + head[at:])
        try:
            taken = list(read_entries(path))
        except UsageError:
            return
        assert sum(len(entry.data) for entry in taken) <= len(noise) + 512


CHECK = """
import sys
disk = open("disk.raw", "rb").read()
sys.exit(2 if disk[4096] == 2 and disk[0] != 1 else 0)  # the second is never there alone
"""


@needs_fuse
@pytest.mark.parametrize(("between", "verdict"), [(["-c", "flush"], "keeps"), ([], "corrupts")])
def test_what_qemu_recorded_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], between: list[str], verdict: str
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    for path in (folder / "disk.raw", tmp_path / "work.raw"):
        path.write_bytes(bytes(1 << 20))
    log = tmp_path / "block.log"
    log.write_bytes(b"")
    options = (
        "driver=blklogwrites,"
        f"file.driver=file,file.filename={tmp_path / 'work.raw'},"
        f"log.driver=file,log.filename={log}"
    )
    writes = ["-c", "write -P 1 0 4k", *between, "-c", "write -P 2 4k 4k"]
    subprocess.run(["qemu-io", "--image-opts", *writes, options], check=True, timeout=60)
    (tmp_path / "check.py").write_text(CHECK)
    check = f"{sys.executable} {tmp_path / 'check.py'}"
    arguments = ["crash", "--block-log", str(log), "--check", check, str(folder), "--json"]
    store = f"sqlite:///{tmp_path / 'store.db'}"
    capsys.readouterr()
    code = run_command_line([*arguments, "--store", store, "--budget", "90s"])
    told = {each["fault"]: each["verdict"] for each in json.loads(capsys.readouterr().out)}
    assert told["power"] == verdict and code == (verdict != "keeps")
