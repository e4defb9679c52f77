"""Writers and checks without a recording: rows, promises, a SQLite database that is damaged."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.crash.flush_audit import FlushCounts
from diskproof.crash.writers import load_writer, postgres_guest, sqlite
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.command import ACKNOWLEDGED, PYTHON, USAGE, main
from diskproof.crash.writers.guest_state import ledger_promises, sqlite_promises
from diskproof.crash.writers.ledger import disk_args, ledger_args
from diskproof.crash.writers.program_end import require_written
from diskproof.crash.writers.sqlite_guest import MAX_ROWS, render_script
from diskproof.errors import RunFailure, UsageError
from diskproof.guest.ours.wire import exec_request, render_request
from diskproof.process.start import run
from diskproof.records import Cell
from diskproof.study.crash import WRITERS, CrashRules, crash_workload

NAMES = st.integers(1, 40)


@given(st.sets(NAMES), st.sets(NAMES), st.integers(0, 40))
def test_rows_are_judged(present: set[int], damaged: set[int], promised: int) -> None:
    """A wrong row is corruption, whatever else; a missing one is a loss if it was promised."""
    left = {n: "x" if n in damaged else rows.row_content(n) for n in present}
    found = rows.judge_rows(left, promised)
    missing = set(range(1, promised + 1)) - present
    if present & damaged:
        assert found.code == rows.CORRUPTS
    elif missing:
        assert (found.code, found.lost) == (rows.LOSES, len(missing))
        assert str(min(missing)) in found.why
    else:
        assert found.code == rows.KEEPS


@given(st.lists(st.one_of(st.integers(0, 10**18 - 1), st.text(max_size=30))))
def test_promises_are_read_among_other_lines(said: list[int | str]) -> None:
    lines = [
        rows.promise_line("sqlite", one) if isinstance(one, int) else f"x{one}" for one in said
    ]
    numbers = [one for one in said if isinstance(one, int)]
    assert rows.read_promised(lines, "sqlite") == max(numbers, default=0)
    assert rows.read_promised(lines, "postgres") == 0
    assert rows.read_promised(["sqlite ٣", "sqlite -1", "sqlite 1 2", "sqlite"], "sqlite") == 0


def check(folder: Path, acks: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(acks.encode())))
    return main(sqlite.SqliteDatabase(), ["check", str(folder)])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A database with 20 rows; its promises are in ``acks`` beside it."""
    acks = ["--acks", str(tmp_path / "acks")]
    argv = ["write", str(tmp_path / "db"), *acks, "--records", "20"]
    assert main(sqlite.SqliteDatabase(), argv) == 0
    return tmp_path / "db"


def test_sqlite_keeps_its_promises(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acks = (written.parent / "acks").read_text()
    assert acks.splitlines() == [f"sqlite {n}" for n in range(1, 21)]
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    assert check(written, acks, monkeypatch) == 0
    assert {path.name: path.read_bytes() for path in written.iterdir()} == before
    monkeypatch.setenv(ACKNOWLEDGED, str(written.parent / "acks"))
    assert main(sqlite.SqliteDatabase(), ["check", str(written)]) == 0


def test_sqlite_loses(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(written, "sqlite 23", monkeypatch) == 1
    assert capsys.readouterr().out == "3\n"
    (written / sqlite.FILE).write_bytes(b"")
    assert check(written, "sqlite 20", monkeypatch) == 1
    assert capsys.readouterr().out == "20\n"
    (written / sqlite.FILE).unlink()
    assert check(written, "sqlite 20", monkeypatch) == 1
    assert check(written.parent / "none", "sqlite 20", monkeypatch) == 1
    assert check(written.parent / "none", "", monkeypatch) == 0


@pytest.mark.parametrize("page", [0, 1, 2])
def test_sqlite_is_corrupt(written: Path, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray((written / sqlite.FILE).read_bytes())
    content[page * 4096 : page * 4096 + 512] = bytes(range(256)) * 2
    (written / sqlite.FILE).write_bytes(content)
    assert check(written, "sqlite 20", monkeypatch) == 2


def test_no_mistake_of_a_check_looks_like_a_loss(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(sqlite.SqliteDatabase(), ["chekc"]) == USAGE
    assert main(sqlite.SqliteDatabase(), ["write", "x", "--acks", "a", "--set", "a=b;c"]) == USAGE
    monkeypatch.setenv(ACKNOWLEDGED, str(written / "no such file"))
    assert main(sqlite.SqliteDatabase(), ["check", str(written)]) == 3
    monkeypatch.delenv(ACKNOWLEDGED)
    monkeypatch.setattr(sqlite.SqliteDatabase, "check", lambda *_: 1 // 0)
    assert check(written, "sqlite 1", monkeypatch) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_every_writer_has_its_check() -> None:
    kinds = {}
    for name, frontends in WRITERS.items():
        for frontend in frontends:
            levels = (("format", "qcow2"), ("frontend", frontend))
            cell = Cell(levels, crash_workload(CrashRules(), name, frontend))
            asked = load_writer(name).check(cell)
            kinds[name, frontend] = asked["kind"]
            assert asked.get("target") in (None, "disk.qcow2")
    assert kinds["ledger", "guest"] == "ledger"
    assert kinds["ledger-fs", "guest"] == kinds["sqlite", "host"] == "command"
    with pytest.raises(UsageError, match="known: ledger"):
        load_writer("nobody")


@pytest.mark.parametrize(
    ("status", "stderr", "kind", "what"),
    [
        (3, b"disk: No space left on device (os error 28)", "space", "ended with status 3"),
        (-9, b"", "workload", "was killed by signal 9"),
        (1, b"\xff" * 9999, "workload", "ended with status 1"),
    ],
)
def test_a_writer_that_fails_is_told(status: int, stderr: bytes, kind: str, what: str) -> None:
    require_written("ledger", 0, stderr)
    with pytest.raises(RunFailure, match=what) as caught:
        require_written("ledger", status, stderr)
    assert caught.value.kind == kind and len(caught.value.why) <= 1500
    assert caught.value.evidence == (("stderr", stderr),)


def test_a_check_that_cannot_start_loses_nothing() -> None:
    done = run([*PYTHON, "diskproof.no_such_check", "x"], timeout=60, check=False)
    assert done.returncode == 3 and "no_such_check" in done.error_text


def test_postgres_in_a_guest_promises_after_each_commit() -> None:
    lines = postgres_guest.render_script(2).splitlines()
    assert lines[0].startswith("CREATE TABLE promise ")
    assert [line.split(" VALUES ")[0] for line in lines[1:]] == [
        *("INSERT INTO promise", r"\echo postgres 1", "INSERT INTO promise", r"\echo postgres 2")
    ]
    script = postgres_guest.render_script(10**6)
    assert script.count("INSERT") == postgres_guest.MAX_ROWS
    argv = ["sh", "-c", postgres_guest._WRITE, "sh", "10"]
    request = exec_request(1, argv, seconds=1, env={}, cwd="/", stdin=script.encode())
    assert render_request(request)


def test_ledger_arguments_fit_the_disk() -> None:
    spec = crash_workload(CrashRules(records=100, seconds=2.5, depth=3, seed=7), "ledger", "host")
    args = " ".join(ledger_args(spec))
    assert args == (
        "--records 100 --seconds 2.5 --depth 3 --flush-every 4 --durable flush --slots 50"
    )
    assert disk_args(spec, 1 << 30) == [*args.split(), "--seed", "8"]
    assert "--slots 2 --seed 8" in " ".join(disk_args(spec, 3 * 4096 - 1))


def test_the_guests_script_fits_a_request() -> None:
    script = render_script(10**6, "write")
    assert "PRAGMA synchronous=off;" in script and "synchronous=full" not in script
    assert script.count("INSERT") == script.count("SELECT 'sqlite ") == MAX_ROWS
    request = exec_request(1, ["x"], seconds=1, env={}, cwd="/", stdin=script.encode())
    assert render_request(request)


def test_promises_for_a_guest_are_two_lines_at_most() -> None:
    begin, other = "ledger 00000000000000ab 0 0 32 0000000000000000", "ledger ; rm -rf / 1"
    lines = [begin, "noise", *(f"ledger 00000000000000ab {n}" for n in range(1, 9)), other]
    assert ledger_promises(lines) == [begin, "ledger 00000000000000ab 8"]
    assert ledger_promises([begin]) == ledger_promises(["ledger 00000000000000ab 8"]) == []
    assert sqlite_promises(["sqlite 3", "sqlite 2", "wal"]) == ["sqlite 3"]


@pytest.mark.parametrize(
    ("counts", "cache", "finding"),
    [
        ((32, 64, 64, 63), True, "passed on to the host"),
        ((32, 0, 0, 97), False, "the host is flushed after each write"),
        ((32, 0, 0, 0), True, "the guest sends none"),
        ((32, 0, 0, 0), False, "the guest sends none: its disk tells of no cache"),
        ((32, 1, 1, 0), True, "the guest sends none"),  # the file system's own
        ((32, 1, 1, 1), True, "the guest sends none"),
        ((32, 4, 4, 4), False, "the guest sends none: its disk tells of no cache"),
        ((32, 5, 5, 5), True, "the guest sends 5 for 32 syncs"),
        ((32, 1, 1, 97), False, "the host is flushed after each write"),
        ((32, 32, 0, 0), True, "QEMU carries out none"),
        ((32, 64, 64, 1), True, "QEMU carries out none"),
        ((32, 33, 32, 30), True, "QEMU carries out 30 for 32 syncs"),
        ((32, 31, 31, 31), True, "the guest sends 31 for 32 syncs"),
        ((32, 20, 20, 20), True, "the guest sends 20 for 32 syncs"),
    ],
)
def test_flush_counts_say_where_flushes_end(
    counts: tuple[int, int, int, int], cache: bool, finding: str
) -> None:
    row = FlushCounts("ext4", cache, *counts)
    assert row.finding == finding
