"""sync trace by a preloaded library: whom it reaches, what it loses, and how exact it is.

What holds for each mechanism is in test_sync_trace.py.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from diskproof.process.native import require_native
from diskproof.process.start import run
from support.commands import let_everybody_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and other users need root")

HERE = Path(__file__).parent
DEADLINE = 300.0
RING = 1 << 15


def build(path: Path, source: Path, *options: str) -> Path:
    run(["cc", "-O1", "-pthread", *options, "-o", str(path), str(source)], timeout=DEADLINE)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preload")
    return build(folder / "syncer", HERE / "sync_trace_program.c")


def trace_argv(folder: Path) -> list[str]:
    tool = str(require_native("diskproof-sync-trace"))
    return [tool, "--by", "preload", "--json", "-o", str(folder / "trace.json"), "--"]


def read_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "trace.json").read_text())
    assert report["mechanism"] == "preload"
    return report


def run_traced(folder: Path, *command: str | Path) -> dict[str, Any]:
    run([*trace_argv(folder), *map(str, command)], timeout=DEADLINE)
    return read_report(folder)


def test_files_of_calls_that_ended_at_once_are_sure(tmp_path: Path, program: Path) -> None:
    """Nobody has to look while the call is in flight; one descriptor number, many files."""
    script = (
        "import os, sys\n"
        "for number in range(300):\n"
        "    fd = os.open(f'{sys.argv[1]}/{number}', os.O_WRONLY | os.O_CREAT)\n"
        "    os.fdatasync(fd)\n"
        "    os.close(fd)\n"
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        report = run_traced(tmp_path, sys.executable, "-c", script, memory)
    files = {row["file"]: row["calls"] for row in report["groups"]}
    assert files == {f"{memory}/{number}": 1 for number in range(300)}
    assert report["late"] == 0


@pytest.mark.parametrize(
    "around",
    [
        ("env", "-i"),
        ("unshare", "--fork", "--pid"),
        ("setpriv", f"--reuid={65534}", "--clear-groups"),
        ("chroot", "/"),
    ],
    ids=["no environment", "other process numbers", "another user", "another root"],
)
def test_what_the_library_does_not_tell_is_traced(
    tmp_path: Path, program: Path, around: tuple[str, ...]
) -> None:
    """Once each, with the process's number as we know it."""
    tmp_path.chmod(0o777)
    let_everybody_in(tmp_path, program)
    report = run_traced(tmp_path, *around, program, "once", tmp_path / "f")
    (group,) = report["groups"]
    assert (group["call"], group["calls"]) == ("fsync", 1)
    assert group["file"] == str(tmp_path / "f")
    assert group["pid"] > 1
    assert group["process"] == "syncer"


def test_static_programs_are_traced_beside_dynamic_ones(tmp_path: Path, program: Path) -> None:
    static = build(tmp_path / "fixed", HERE / "sync_trace_program.c", "-static")
    script = f"{program} each {tmp_path}/a; {static} each {tmp_path}/b"
    report = run_traced(tmp_path, "sh", "-c", script)
    calls = {(row["process"], row["call"]): row["calls"] for row in report["by_call"]}
    for process in ("syncer", "fixed"):
        assert calls[process, "fsync"] == 3
        assert calls[process, "msync"] == 1
    assert report["calls"] == 2 * 9


def test_where_ptrace_is_taken_the_rest_is_not_seen(tmp_path: Path, program: Path) -> None:
    static = build(tmp_path / "fixed", HERE / "sync_trace_program.c", "-static")
    script = f"{program} once {tmp_path}/a; {static} once {tmp_path}/b"
    tool = str(require_native("diskproof-sync-trace"))
    outer = [tool, "--by", "ptrace", "-o", "/dev/null", "--"]
    run([*outer, *trace_argv(tmp_path), "sh", "-c", script], timeout=DEADLINE)
    report = read_report(tmp_path)
    assert {row["process"]: row["calls"] for row in report["groups"]} == {"syncer": 1}
    why = "programs without the library: ptrace is not possible here (Operation not permitted"
    assert any(text.startswith(why) for text in report["not_seen"])


def test_the_users_own_libraries_go_on_working(tmp_path: Path, program: Path) -> None:
    """They come first; what they call in turn is told."""
    source = tmp_path / "own.c"
    source.write_text("int fdatasync(int);\nint fsync(int fd) { return fdatasync(fd); }\n")
    own = build(tmp_path / "own.so", source, "-shared", "-fPIC")
    argv = [*trace_argv(tmp_path), str(program), "once", str(tmp_path / "f")]
    run(argv, timeout=DEADLINE, env={**os.environ, "LD_PRELOAD": str(own)})
    (row,) = read_report(tmp_path)["by_call"]
    assert (row["call"], row["calls"]) == ("fdatasync", 1)


def test_what_is_not_read_in_time_is_counted(tmp_path: Path, program: Path) -> None:
    """The program does not wait for a tracer that has stopped."""
    calls = RING + 5000
    argv = [*trace_argv(tmp_path), str(program), "storm", str(calls)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as tool:
        assert tool.stdin is not None
        assert tool.stdout is not None
        assert tool.stdout.readline() == "running\n"
        tool.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, tool.pid, os.WSTOPPED)  # all of its threads
        tool.stdin.write("go\n")
        tool.stdin.flush()
        assert tool.stdout.readline() == "done\n"
        tool.send_signal(signal.SIGCONT)
        assert tool.wait(DEADLINE) == 0
    report = read_report(tmp_path)
    assert report["lost"] >= 5000
    assert report["calls"] + report["lost"] == calls


def test_percentiles_are_those_of_a_known_delay(tmp_path: Path, program: Path) -> None:
    """Never below what each call is made to take, and within 5 % of the program's own clock."""
    often, seldom, each = 2, 25, 20
    delayer = build(tmp_path / "delayer", HERE / "sync_delay_program.c")
    words = [str(delayer), str(often), str(each), str(seldom)]
    argv = [*words, *trace_argv(tmp_path), str(program), "times", str(tmp_path / "f")]
    out = run(argv, timeout=DEADLINE).text
    own = sorted(int(line) for line in out.split())
    (row,) = read_report(tmp_path)["by_call"]
    assert row["calls"] == len(own) == 100
    for name, rank, delay in (("p50_ns", 50, often), ("p99_ns", 99, seldom)):
        assert row[name] >= delay * 1_000_000
        assert own[rank - 2] * 0.95 <= row[name] <= own[rank] * 1.05
