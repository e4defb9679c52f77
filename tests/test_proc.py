"""The one door for processes, with real processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.errors import HostError, RunFailure
from diskproof.process import start as proc
from diskproof.process.cage import PROOF, QEMU_CAGE, Cage
from diskproof.process.run_user import require_run_user


def process_exists(pid: int) -> bool:
    """True while the process runs (a zombie has ended)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends while we read
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while process_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not process_exists(pid)


def test_feeds_and_reads_more_than_a_pipe_holds() -> None:
    data = os.urandom(1 << 20)
    assert proc.run(["cat"], timeout=20, stdin=data).stdout == data


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "MAX_OUTPUT", 1000)
    done = proc.run(["head", "-c", "5000000", "/dev/zero"], timeout=20)
    assert len(done.stdout) == 1000


def test_a_program_that_reads_nothing_is_no_error() -> None:
    assert proc.run(["true"], timeout=20, stdin=b"x" * 1_000_000).returncode == 0


def test_failure_carries_the_last_lines() -> None:
    with pytest.raises(RunFailure) as caught:
        proc.run(["sh", "-c", "echo it broke >&2; exit 3"], timeout=20)
    assert caught.value.kind == "tool"
    assert "status 3" in caught.value.what
    assert "it broke" in caught.value.why


def test_missing_program_names_itself() -> None:
    with pytest.raises(HostError, match="no-such-program is not installed"):
        proc.run(["no-such-program"], timeout=1)


def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid_file}; wait"
    pid = ""
    for seconds in (0.5, 5, 30):  # a busy host starts a shell later
        with pytest.raises(RunFailure) as caught:
            proc.run(["sh", "-c", script], timeout=seconds)
        assert caught.value.kind == "timeout"
        with suppress(FileNotFoundError):
            pid = pid_file.read_text()
        if pid:
            break
    assert wait_gone(int(pid))


def test_a_daemonised_output_holder_does_not_outlive_the_deadline() -> None:
    with pytest.raises(RunFailure, match="did not end"):
        proc.run(["sh", "-c", "sleep 600 & exit 0"], timeout=0.5)


def test_started_process_ends_with_its_block(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with proc.start_process(["sh", "-c", "echo here; exec sleep 600"], name="s", log=log) as child:
        pid = child.pid
        while b"here" not in child.read_log():
            assert child.wait(0.02) is None, child.read_log()
    assert not process_exists(pid)
    assert log.read_bytes() == b"here\n"


def test_a_process_deaf_to_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diskproof.process.child.GRACE_SECONDS", 0.2)
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while true; do sleep 600; done"
    with proc.start_process(["sh", "-c", script], name="deaf", log=tmp_path / "log") as child:
        pid = child.pid
        while not ready.exists():
            time.sleep(0.01)
    assert not process_exists(pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping privileges needs root")
def test_confined_child_is_nobody_without_capabilities_or_network(tmp_path: Path) -> None:
    script = "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; ls /sys/class/net"
    log = tmp_path / "log"
    with proc.start_process(["sh", "-c", script], name="c", log=log, confined=True) as child:
        assert child.wait(60) == 0
    lines = log.read_text().split()
    assert lines[0] == str(require_run_user())
    assert lines[lines.index("CapEff:") + 1] == "0000000000000000"
    assert lines[lines.index("CapBnd:") + 1] == "0000000000000000"
    assert lines[lines.index("NoNewPrivs:") + 1] == "1"


def test_a_caged_child_opens_what_is_in_its_cage(tmp_path: Path, public_file: Path) -> None:
    script = f"cat {public_file}; cat mine; echo more >mine && cat mine"
    (tmp_path / "mine").write_bytes(b"mine\n")
    if os.geteuid() == 0:
        for path in (tmp_path, tmp_path / "mine"):
            os.chown(path, require_run_user(), require_run_user())
    log, argv = tmp_path / "log", ["sh", "-c", script]
    starting = proc.start_process(
        argv, name="c", log=log, cwd=tmp_path, confined=True, cage=replace(QEMU_CAGE, spawns=True)
    )
    with starting as child:
        assert child.wait(60) == 0
    assert log.read_text() == f"cat: {public_file}: Permission denied\nmine\nmore\n"


def test_a_cage_holds_the_programs_own_folder(tmp_path: Path) -> None:
    cage = Cage().starting(str(tmp_path / "prefix" / "bin" / "qemu"))
    assert cage.readable == (str(tmp_path / "prefix"),)
    assert Cage().starting(str(tmp_path / "build" / "qemu")).readable == (str(tmp_path / "build"),)


def test_a_file_in_reach_means_that_there_is_no_cage(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel that takes the rules and does not keep to them."""
    monkeypatch.setattr(proc, "QEMU_CAGE", QEMU_CAGE.reading("/etc"))
    proc.find_cage_obstacle.cache_clear()
    try:
        assert proc.find_cage_obstacle() == f"{PROOF} can still be opened"
        prefix = proc.lifeline_args(confined=True, cage=QEMU_CAGE)
        assert "--any-file" in prefix and "--read" not in prefix
    finally:
        proc.find_cage_obstacle.cache_clear()


PARENT = """
import pathlib, sys
from diskproof.process import start as proc
log, confined = pathlib.Path(sys.argv[1]), sys.argv[2] == "True"
with proc.start_process(["sleep", "600"], name="s", log=log, confined=confined) as child:
    print(child.pid, flush=True)
    child.wait(600)
"""


@pytest.mark.parametrize("confined", [False, True])
def test_children_die_with_a_killed_parent(tmp_path: Path, confined: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log"), str(confined)],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert process_exists(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_gone(pid)


@pytest.mark.parametrize("confined", [False, True])
def test_a_child_whose_parent_is_gone_already_does_not_start(confined: bool) -> None:
    argv = [*proc.lifeline_args(confined=confined), "sh", "-c", "exit 7"]
    assert subprocess.run(argv, check=False).returncode == 7
    # timeout(1) forks: the program's parent is not the process that the prefix was made for.
    assert subprocess.run(["timeout", "60", *argv], check=False).returncode == 1
