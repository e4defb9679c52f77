"""sync drop: the command under it, its signals and its end.

Requires gcc, seccomp with user notification (kernel 5.14) and the built diskproof-sync-drop.
"""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from diskproof.process.native import require_native
from diskproof.process.start import run
from support.sync_drop import (
    DEADLINE,
    Build,
    drop,
    drop_args,
    make_build,
    read_counts,
    start_drop,
    sync_words,
    wait_for,
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return make_build(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
def test_exit_codes_are_the_commands_own(tmp_path: Path, options: Sequence[str]) -> None:
    def code(*words: str) -> int:
        return drop("--quiet", *options, "--", *words, cwd=tmp_path).returncode

    assert code("sh", "-c", "exit 7") == 7
    assert code("sh", "-c", "kill -SEGV $$") == 139
    assert code("diskproof-not-there") == 127
    assert code("/tmp") == 126
    assert code("false") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--preload", "--strict", "true"),
        ("--preload", "--only", "/", "true"),
        ("--only", "/not/there", "true"),
        ("--json", "/not/there/file", "true"),
        ("--after", "-1", "true"),
        ("--dir", "/", "true"),
        (),
    ],
    ids=str,
)
def test_wrong_usage_runs_nothing(tmp_path: Path, words: Sequence[str]) -> None:
    done = drop(*words, cwd=tmp_path)
    assert done.returncode == 2 and done.error_text and "panicked" not in done.error_text


def test_it_warns_once_counts_at_the_end_and_can_be_silent(tmp_path: Path) -> None:
    words = sync_words("a")
    loud = drop("--", *words, cwd=tmp_path).error_text.splitlines()
    assert len(loud) == 2 and "loses or corrupts" in loud[0]
    assert "3 syncs dropped (" in loud[1] and "saved if each cost" in loud[1]
    assert drop("--quiet", "--", *words, cwd=tmp_path).error_text == ""


def test_closed_output_does_not_matter(tmp_path: Path) -> None:
    sync_drop = require_native("diskproof-sync-drop")
    script = f'"{sync_drop}" -- sh -c "exit 3" 0<&- 1>&- 2>&-; echo $?'
    assert run(["sh", "-c", script], timeout=DEADLINE, cwd=tmp_path).text == "3\n"


def test_a_second_filter_is_refused_and_the_way_out_named(tmp_path: Path) -> None:
    inner = drop_args("--after", "1", "true")
    done = drop("--quiet", "--", *inner, cwd=tmp_path)
    assert done.returncode == 3
    assert "another supervisor listens" in done.error_text and "--preload" in done.error_text
    inner = drop_args("--preload", "--json", "-", "--", *sync_words("a"))
    told = json.loads(drop("--quiet", "--", *inner, cwd=tmp_path).text)
    assert told["exit_code"] == 0


def test_the_users_own_preload_stays(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": "/tmp/own one.so"}
    done = drop("sh", "-c", "echo $LD_PRELOAD", cwd=tmp_path, env=environment)
    assert done.text.endswith("libdiskproof_sync_drop.so:/tmp/own one.so\n")


def test_root_keeps_set_user_id_programs_working(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs no no_new_privs for a filter")
    done = drop("--quiet", "grep", "NoNewPrivs", "/proc/self/status", cwd=tmp_path)
    assert done.text.split() == ["NoNewPrivs:", "0"]


@pytest.mark.parametrize("options", [(), ("--strict",)], ids=str)
def test_inside_one_with_the_same_options(
    tmp_path: Path, build: Build, options: Sequence[str]
) -> None:
    """The outer one drops and counts, the inner one says that it has nothing to do."""
    inner = drop_args(*options, "--", build("static"), tmp_path)
    counts = tmp_path / "counts"
    done = drop("--quiet", *options, "--json", counts, "--", *inner, cwd=tmp_path)
    assert (done.returncode, len(done.text.splitlines())) == (0, 145)
    assert done.error_text.startswith("diskproof-sync-drop: inside a sync drop with the same")
    assert len(done.error_text.splitlines()) == 1
    assert read_counts(counts)["fsync"] == 5
    codes = {"false": 1, "no-such-program": 127, "/etc/passwd": 126}
    for program, code in codes.items():
        inner = drop_args("--quiet", *options, "--", program)
        done = drop("--quiet", *options, "--", *inner, cwd=tmp_path)
        assert (done.returncode, bool(done.error_text)) == (code, code > 1)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ((), ("--strict",)),
        (("--strict",), ()),
        ((), ("--after", "2")),
        (("--after", "2"), ()),
        (("--only", "."), ()),
        ((), ("--only", ".")),
        ((), ("--json", "counts")),
    ],
    ids=str,
)
def test_inside_one_with_other_options(
    tmp_path: Path, outer: Sequence[str], inner: Sequence[str]
) -> None:
    command = drop_args("--quiet", *inner, "--", "touch", "ran")
    done = drop("--quiet", *outer, "--", *command, cwd=tmp_path)
    assert done.returncode == 3
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(tmp_path: Path, number: int, options: Sequence[str]) -> None:
    with start_drop(
        "--quiet", *options, "--", "sh", "-c", "echo; exec sleep 60", cwd=tmp_path
    ) as child:
        assert child.stdout and child.stdout.readline() == b"\n"
        os.kill(child.pid, number)
        assert child.wait(DEADLINE) == 128 + number


def test_stopped_and_continued_with_its_command(tmp_path: Path) -> None:
    with start_drop("--quiet", "sh", "-c", "echo $$; exec sleep 60", cwd=tmp_path) as child:
        assert child.stdout
        command = psutil.Process(int(child.stdout.readline()))
        both = (command, psutil.Process(child.pid))
        os.kill(child.pid, signal.SIGTSTP)
        wait_for(lambda: all(one.status() == "stopped" for one in both), "stopped")
        os.kill(child.pid, signal.SIGCONT)
        wait_for(lambda: all(one.status() == "sleeping" for one in both), "continued")
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(DEADLINE) == 143


def test_killed_it_takes_the_command_along(tmp_path: Path) -> None:
    with start_drop("--quiet", "sh", "-c", "echo $$; exec sleep 60", cwd=tmp_path) as child:
        assert child.stdout
        command = psutil.Process(int(child.stdout.readline()))
        os.kill(child.pid, signal.SIGKILL)
        wait_for(lambda: is_over(command), "the command outlives its killed supervisor")


def is_over(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_what_is_left_in_the_background_delays_nobody_and_goes_on(
    tmp_path: Path, build: Build
) -> None:
    os.mkfifo(tmp_path / "go")
    later = f"(read word < go; {build('static-threads')} f; echo $? > result) > out 2>&1 &"
    done = drop("--json", "-", "setsid", "sh", "-c", f"{later} exit 4", cwd=tmp_path)
    told = json.loads(done.text)
    assert (done.returncode, told["processes_still_running"]) == (4, 1)
    assert "still run" in done.error_text
    (tmp_path / "go").write_text("\n")
    result = tmp_path / "result"
    wait_for(lambda: result.exists() and result.read_text() == "0\n", "background syncs hang")
    name = "diskproof-sync-drop"[:15]
    ours = [one for one in psutil.process_iter(["name", "cwd"]) if one.info["name"] == name]
    mine = [one for one in ours if one.info["cwd"] == str(tmp_path)]
    psutil.wait_procs(mine, timeout=DEADLINE)
    assert not any(one.is_running() for one in mine)


def test_with_its_supervisor_killed_a_background_process_gets_errors_and_never_hangs(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "go")
    program = """
import os
open("ready", "w").close()
open("go").read()
fd = os.open("data", os.O_RDWR | os.O_CREAT)
try: os.fsync(fd)
except OSError as error: open("result", "w").write(str(error.errno))
"""
    (tmp_path / "program.py").write_text(program)
    script = "LD_PRELOAD= setsid /usr/bin/python3 -I -S program.py & exec sleep 60"
    with start_drop("--quiet", "sh", "-c", script, cwd=tmp_path) as child:
        wait_for((tmp_path / "ready").exists, "ready")
        (server,) = psutil.Process(child.pid).children()
        server.kill()
        assert child.wait(DEADLINE) == 137
        (tmp_path / "go").write_text("")
        result = tmp_path / "result"
        wait_for(lambda: result.exists() and result.read_text() != "", "the sync hangs")
        assert result.read_text() == str(38)


def test_a_library_alone_drops_too(tmp_path: Path, build: Build) -> None:
    library = require_native("libdiskproof_sync_drop.so")
    (tmp_path / "here").mkdir()
    plain = run([str(build("dynamic")), str(tmp_path / "here")], timeout=DEADLINE)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    argv = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,sync,syncfs,msync", "-o", "seen"]
    done = run(
        [*argv, str(build("dynamic")), str(tmp_path / "here")],
        timeout=DEADLINE,
        cwd=tmp_path,
        env=environment,
    )
    assert done.text == plain.text
    seen = (tmp_path / "seen").read_text().splitlines()
    assert [line for line in seen if line.endswith("= 0") and "MS_SYNC" in line] == []
    succeeded = [line for line in seen if line.endswith("= 0") and "sync(" in line]
    assert all("msync(" in line or "syncfs(" in line for line in succeeded), succeeded


OPEN_PIPE = 'import os; print(os.getpid(), flush=True); os.open("pipe", os.O_RDONLY | os.O_SYNC)'


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, None], ids=str)
def test_an_open_that_waits_is_no_trap(tmp_path: Path, end: signal.Signals | None) -> None:
    os.mkfifo(tmp_path / "pipe")
    words = ["env", "LD_PRELOAD=", "/usr/bin/python3", "-I", "-S", "-c", OPEN_PIPE]
    with start_drop("--quiet", *words, cwd=tmp_path) as child:
        assert child.stdout
        command = psutil.Process(int(child.stdout.readline()))
        wait_for(lambda: waits_in_open(command.pid), "it never waits")
        if end is None:
            (tmp_path / "pipe").write_text("")
            assert child.wait(DEADLINE) == 0
        else:
            os.kill(child.pid, end)
            assert child.wait(DEADLINE) == {signal.SIGTERM: 143, signal.SIGKILL: -9}[end]
        wait_for(lambda: is_over(command), "the command hangs")


def waits_in_open(pid: int) -> bool:
    """Whether it waits in openat(2), number 257, with its flags already changed."""
    words = Path(f"/proc/{pid}/syscall").read_text().split()
    return len(words) > 3 and words[0] == "257" and not int(words[3], 16) & os.O_SYNC
