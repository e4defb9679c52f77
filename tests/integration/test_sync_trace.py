"""sync trace with real programs: what it tells is what they did, and they see nothing of it.

Requires root (tracepoints), a C compiler and a static C library, as the build of native/ does.
"""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diskproof.process import start as proc
from diskproof.process.native import require_native
from support.commands import let_everybody_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tracepoints need root")

PROGRAM = Path(__file__).parent / "sync_trace_program.c"
DEADLINE = 300.0
NOBODY = 65534
LIBRARY = "libdiskproof_sync_trace.so"
COMMANDS = pytest.mark.parametrize("by", ["tracepoints", "preload", "ptrace"])
PROCESSES = pytest.mark.parametrize("by", ["tracepoints", "ptrace"])


def build(folder: Path, *options: str) -> Path:
    path = folder / "syncer"
    argv = ["cc", "-O1", "-pthread", *options, "-o", str(path), str(PROGRAM)]
    proc.run(argv, timeout=DEADLINE)
    return path


@pytest.fixture(scope="module")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test program as no preloaded library sees it."""
    return build(tmp_path_factory.mktemp("static"), "-static")


@pytest.fixture(scope="module")
def dynamic_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dynamic"))


@pytest.fixture
def program(request: pytest.FixtureRequest, static_program: Path, dynamic_program: Path) -> Path:
    """The test program as the mechanism under test prefers it."""
    by = getattr(request.node, "callspec", None) and request.node.callspec.params.get("by")
    return dynamic_program if by == "preload" else static_program


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that anybody may use, its parents included."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)  # one may be /tmp itself, with its sticky bit
    tmp_path.chmod(0o777)
    return tmp_path


def tracer() -> str:
    return str(require_native("diskproof-sync-trace"))


def trace(*arguments: str | Path, code: int = 0, timeout: float = DEADLINE) -> proc.Completed:
    done = proc.run([tracer(), *map(str, arguments)], timeout=timeout, check=False)
    assert done.returncode == code, done.error_text
    return done


def trace_json(folder: Path, by: str, *command: str | Path, code: int = 0) -> dict[str, Any]:
    out = folder / "trace.json"
    trace("--by", by, "--json", "-o", out, "--", *command, code=code)
    report: dict[str, Any] = json.loads(out.read_text())
    assert report["lost"] == 0
    return report


def calls_of(report: dict[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in report["by_call"]:
        counts[row["call"]] = counts.get(row["call"], 0) + row["calls"]
    return counts


@contextmanager
def start_writer(
    program: Path, file: Path, prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A process that syncs a file until it is told to end, by a line; it prints its count."""
    argv = [*prefix, str(program), "until-told", str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "running\n"
            yield child
        finally:
            child.kill()


def end_writer(child: subprocess.Popen[str]) -> int:
    """How often it synced; it must end as if nobody had watched."""
    out, _ = child.communicate("end\n", timeout=DEADLINE)
    assert child.returncode == 0
    return int(out)


@COMMANDS
def test_each_call_is_counted_by_process_and_file(tmp_path: Path, program: Path, by: str) -> None:
    report = trace_json(tmp_path, by, program, "each", tmp_path / "f")
    counts = calls_of(report)
    seen = {"fsync": 3, "fdatasync": 2, "syncfs": 1, "sync_file_range": 1, "sync": 1, "msync": 1}
    assert counts == seen
    # The file system and the whole machine took long enough for their names to be sure.
    files = {row["file"] for row in report["groups"]}
    assert files >= {str(tmp_path / "f"), "(all file systems)"}
    assert {row["process"] for row in report["groups"]} == {"syncer"}
    assert report["errors"] == 0


@COMMANDS
def test_bytes_between_syncs(tmp_path: Path, by: str) -> None:
    # Preloaded, bytes are asked for each ms, by a reader that a busy host lets wait: the writer
    # stays until it has looked once more.
    script = (
        "import os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "for _ in range(30):\n"
        "    os.write(fd, bytes(100_000)); os.fsync(fd)\n"
        "time.sleep(1.5)\n"
    )
    report = trace_json(tmp_path, by, sys.executable, "-c", script, tmp_path / "f")
    (writer,) = report["writers"]
    assert writer["syncs"] == 30
    assert 2_700_000 <= writer["written_bytes"] <= 3_000_000  # asked at most each 50 us


@COMMANDS
def test_threads_stay_side_by_side(tmp_path: Path, program: Path, by: str) -> None:
    report = trace_json(tmp_path, by, program, "threads", tmp_path / "f")
    assert calls_of(report) == {"fsync": 8 * 25}
    assert len({row["pid"] for row in report["groups"]}) == 1


@COMMANDS
def test_forks_and_execs_are_followed(tmp_path: Path, program: Path, by: str) -> None:
    script = f"exec sh -c '{program} once {tmp_path}/a & {program} once {tmp_path}/b; wait; exit 7'"
    report = trace_json(tmp_path, by, "sh", "-c", script, code=7)
    assert calls_of(report) == {"fsync": 2}
    assert len({row["pid"] for row in report["groups"]}) == 2
    assert {row["process"] for row in report["groups"]} == {"syncer"}
    assert report["exit_code"] == 7


@COMMANDS
def test_errors_stay_errors(tmp_path: Path, program: Path, by: str) -> None:
    out = tmp_path / "trace.json"
    done = trace("--by", by, "--json", "-o", out, "--", program, "errors")
    numbers = [errno.EBADF, errno.EINVAL, errno.EINVAL, errno.EBADF, errno.ESPIPE, errno.EBADF]
    assert done.text.split() == [str(number) for number in numbers]
    assert json.loads(out.read_text())["errors"] == len(numbers)


@COMMANDS
def test_signals_arrive_and_interrupt_nothing(tmp_path: Path, program: Path, by: str) -> None:
    out = tmp_path / "trace.json"
    done = trace("--by", by, "--json", "-o", out, "--", program, "alarm", tmp_path / "f")
    failed, interrupted, ticks = done.text.split()
    assert (failed, interrupted) == ("0", "0")
    assert int(ticks) >= 20
    assert calls_of(json.loads(out.read_text()))["fsync"] >= 1


@COMMANDS
def test_a_killed_command_is_told_as_a_shell_tells_it(
    tmp_path: Path, program: Path, by: str
) -> None:
    report = trace_json(tmp_path, by, program, "killed", tmp_path / "f", code=128 + signal.SIGKILL)
    assert calls_of(report) == {"fsync": 1}


@COMMANDS
def test_a_thread_is_cancelled_in_a_sync(tmp_path: Path, program: Path, by: str) -> None:
    done = trace("--by", by, "--", program, "cancel", tmp_path / "f")
    assert done.text == "cancelled\n"


def test_what_a_command_leaves_behind_goes_on(tmp_path: Path, program: Path) -> None:
    """The trace ends with the command; a sync of a later process still works."""
    os.mkfifo(tmp_path / "go")
    script = f"(read x < {tmp_path}/go; {program} once {tmp_path}/f; echo $? > {tmp_path}/go) &"
    with subprocess.Popen([tracer(), "--by", "tracepoints", "--", "sh", "-c", script]) as child:
        assert child.wait(DEADLINE) == 0
    (tmp_path / "go").write_text("x\n")
    assert (tmp_path / "go").read_text() == "0\n"


@COMMANDS
def test_latencies_are_those_that_the_program_measures(
    tmp_path: Path, program: Path, by: str
) -> None:
    """The program's own clock sees the call and what is around it, so it never shows less.

    How much more is our cost for it, and the wait for a CPU where we take turns with it.
    """
    out = tmp_path / "trace.json"
    done = trace("--by", by, "--json", "-o", out, "--", program, "times", tmp_path / "f")
    times = sorted(int(line) for line in done.text.split())
    (row,) = json.loads(out.read_text())["by_call"]
    assert row["calls"] == len(times)
    # Neighbours of the median may lie far apart.
    low, high = times[len(times) * 45 // 100], times[len(times) * 55 // 100]
    assert row["p50_ns"] <= high * 1.05
    if by == "tracepoints":
        assert row["p50_ns"] >= low * 0.95 - 20_000
    assert row["p99_ns"] <= times[-1] * 1.01
    assert row["max_ns"] <= times[-1]
    assert row["total_ns"] <= sum(times)


@PROCESSES
def test_writes_that_sync_are_seen_on_request(tmp_path: Path, program: Path, by: str) -> None:
    plain = trace_json(tmp_path, by, program, "dsync", tmp_path / "f")
    assert calls_of(plain) == {"pwritev2": 5}
    out = tmp_path / "writes.json"
    trace("--by", by, "--writes", "--json", "-o", out, "--", program, "dsync", tmp_path / "f")
    report = json.loads(out.read_text())
    written = sum(row["written_bytes"] for row in report["writers"])
    counts = calls_of(report)
    assert counts.pop("pwritev2") == 5
    if by == "ptrace":
        assert (counts, written) == ({"write": 200}, 205 * 4096)
    else:
        # Of a process that is gone when we look, flags and last bytes are not known.
        assert 0 < counts["write"] <= 200
        assert 0 < written <= 205 * 4096


@PROCESSES
def test_a_running_process_is_watched_and_let_go(tmp_path: Path, program: Path, by: str) -> None:
    with start_writer(program, tmp_path / "f") as child:
        out = tmp_path / "trace.json"
        argv = [tracer(), "--by", by, "-p", str(child.pid), "--every", "1", "-o", str(out)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            # The first picture that holds calls.
            assert any(re.search(r"\d+ calls", line) for line in watching.stdout)
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=DEADLINE)
        assert watching.returncode == 0
        assert end_writer(child) > 0
    assert f"sync trace by {by}: " in out.read_text()


def trace_to_the_end(child: subprocess.Popen[str], *words: str) -> tuple[int, str]:
    """The status and the output of a tracer of a writer that ends while it is watched."""
    argv = [*words, "-p", str(child.pid), "--every", "1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline()
        end_writer(child)
        out, _ = watching.communicate(timeout=DEADLINE)
    return watching.returncode, out


@PROCESSES
def test_a_process_that_ends_ends_the_trace(tmp_path: Path, program: Path, by: str) -> None:
    with start_writer(program, tmp_path / "f") as child:
        status, out = trace_to_the_end(child, tracer(), "--by", by)
    assert status == 0
    assert "files that cost most" in out
    # Of a long path the end is shown.
    assert str(tmp_path / "f")[-40:] in out


def test_without_privileges(open_folder: Path, program: Path, dynamic_program: Path) -> None:
    """Own commands by preload, own processes by ptrace, those of others not at all."""
    let_everybody_in(program, dynamic_program)
    tool = open_folder / "trace"
    for copy, name in ((tool, "diskproof-sync-trace"), (open_folder / LIBRARY, LIBRARY)):
        copy.write_bytes(require_native(name).read_bytes())
        copy.chmod(0o755)
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    file = open_folder / "f"
    for each in (program, dynamic_program):
        run = [*drop, str(tool), "--", str(each), "once", str(file)]
        assert "sync trace by preload: 1 calls" in proc.run(run, timeout=DEADLINE).error_text
    (open_folder / LIBRARY).unlink()
    assert "sync trace by ptrace: 1 calls" in proc.run(run, timeout=DEADLINE).error_text
    asked = [*drop, str(tool), "--by", "preload", "--", "true"]
    missing = proc.run(asked, timeout=DEADLINE, check=False)
    assert missing.returncode == 3
    assert "is not beside us" in missing.error_text
    foreign = proc.run([*drop, str(tool), "-p", str(os.getpid())], timeout=DEADLINE, check=False)
    assert foreign.returncode == 3
    assert "it belongs to somebody else" in foreign.error_text
    points = [*drop, str(tool), "--by", "tracepoints", "--", "true"]
    refused = proc.run(points, timeout=DEADLINE, check=False)
    assert refused.returncode == 3
    assert "root or CAP_PERFMON" in refused.error_text
    with start_writer(program, file, drop) as child:
        _, out = trace_to_the_end(child, *drop, str(tool))
    assert "sync trace by ptrace: " in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--", "no-such-command"), 127, "cannot be run"),
        (("--", "/"), 126, "cannot be run"),
        (("-p", "4194305"), 2, "there is no such process"),
        (("-o", "/no/such/folder/x", "--", "true"), 2, "cannot be written"),
        (("--by", "preload", "-p", "1"), 2, "not running processes"),
        (("--by", "preload", "--", "no-such-command"), 127, "cannot be run"),
        (("--by", "ptrace", "--", "no-such-command"), 127, "cannot be run"),
        (("--by", "ptrace", "--", "/"), 126, "cannot be run"),
        (("--by", "notify", "--", "true"), 2, "invalid value"),
        (("-p", "x"), 2, "invalid value"),
        ((), 2, "required"),
    ],
)
def test_bad_input_is_told(arguments: tuple[str, ...], code: int, words: str) -> None:
    assert words in trace(*arguments, code=code).error_text


def test_where_ptrace_is_taken_it_is_told() -> None:
    """The kernel allows one tracer; the inner tool says so and the outer one passes it on."""
    for options in (("--by", "ptrace"), ("--by", "preload", "--writes")):
        done = trace("--by", "ptrace", "--", tracer(), *options, "--", "true", code=3)
        assert "ptrace is not possible here (Operation not permitted" in done.error_text


JSON_FIELDS = (
    "type protocol mechanism command pid exit_code wall_ns calls errors total_ns busy_ns max_ns "
    "late lost not_seen by_call groups writers waits advice"
)


@COMMANDS
def test_json_and_folded_tell_the_same(tmp_path: Path, program: Path, by: str) -> None:
    report = trace_json(tmp_path, by, program, "each", tmp_path / "a;b c")
    assert list(report) == JSON_FIELDS.split()
    assert (report["type"], report["protocol"]) == ("sync_trace", 1)
    assert sum(row["total_ns"] for row in report["groups"]) == report["total_ns"]
    assert sum(row["total_ns"] for row in report["by_call"]) == report["total_ns"]
    for row in report["by_call"]:
        assert sum(part["calls"] for part in row["histogram"]) == row["calls"]
        assert row["p50_ns"] <= row["p99_ns"] <= row["p99_9_ns"] <= row["max_ns"]
    out = tmp_path / "folded"
    trace("--by", by, "--folded", "calls", "-o", out, "--", program, "each", tmp_path / "a;b c")
    lines = [re.fullmatch(r"(.+) (\d+)", line) for line in out.read_text().splitlines()]
    assert all(lines)
    assert sum(int(line[2]) for line in lines if line) == report["calls"]
    assert all(line[1].count(";") == 2 for line in lines if line)


@COMMANDS
def test_the_report_fits_a_terminal(tmp_path: Path, program: Path, by: str) -> None:
    folder = tmp_path / ("long-" * 30)
    folder.mkdir()
    text = trace("--by", by, "--", program, "each", folder / "f\x1b[31m").error_text
    assert all(len(line) <= 80 and line.isprintable() for line in text.splitlines())
    assert "files that cost most" in text
    assert f"sync trace by {by}: " in text
    assert "not seen: io_uring and aio fsyncs" in " ".join(text.split())
