"""One measurement at a time on a host, by the lock of the kernel itself.

Requires root, for a time namespace of its own is a host of its own to the lock; and fio.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from diskproof.process.host_lock import VARIABLE
from support.commands import STUDY, let_everybody_in, write_study

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root makes namespaces"),
    pytest.mark.long,
]

ONE_RUN = (
    STUDY.replace("blocks = 2", "blocks = 1")
    .replace('frontend = ["host", "daemon"]', 'frontend = "host"')
    .replace('format = ["raw", "qcow2"]\n', "")
)
CONTAINER = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Host:
    """Processes that share a time namespace with each other and nobody else."""

    def __init__(self, keeper: int) -> None:
        self.started: list[subprocess.Popen[str]] = []
        self._enter = ["nsenter", f"--time=/proc/{keeper}/ns/time_for_children"]

    def start(
        self, words: Sequence[str], cwd: Path, within: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        given = {name: text for name, text in os.environ.items() if name != VARIABLE}
        child = subprocess.Popen(
            [*self._enter, *within, *words],
            cwd=cwd,
            env=given,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(child)
        return child

    def run(
        self, folder: Path, *more: str, within: Sequence[str] = (), runtime: str = "1s"
    ) -> subprocess.Popen[str]:
        """A measurement in a folder of its own, with a store of its own."""
        text = ONE_RUN.replace('"images"', f'"{folder}"').replace('"1s"', f'"{runtime}"')
        study = write_study(folder, text)
        argv = [sys.executable, "-m", "diskproof", "run", str(study), "--quiet", *more]
        return self.start(argv, folder, within)

    def hold(self, cwd: Path, within: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Somebody who has the lock and will not give it back."""
        code = (
            "import fcntl, time; f = open('/proc/self/ns/time'); fcntl.flock(f, fcntl.LOCK_EX); "
            "print('held', flush=True); time.sleep(1000)"
        )
        holder = self.start([sys.executable, "-c", code], cwd, within)
        assert holder.stdout and holder.stdout.readline() == "held\n"
        return holder


@pytest.fixture
def host() -> Iterator[Host]:
    argv = ["unshare", "--time", "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout and keeper.stdout.readline() == "ready\n"
        alone = Host(keeper.pid)
        yield alone
        for child in alone.started:  # those of a test that failed
            child.kill()
            child.wait()
        keeper.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=300)
    return process.returncode, err


def folders(top: Path, *names: str) -> list[Path]:
    for name in names:
        (top / name).mkdir()
    return [top / name for name in names]


def test_of_three_that_begin_at_once_one_measures(tmp_path: Path, host: Host) -> None:
    places = folders(tmp_path, "a", "b", "c")
    running = [host.run(place, runtime="10m") for place in places]
    deadline = time.monotonic() + 300
    while sum(each.poll() is None for each in running) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    for each in running:
        if each.poll() is None:  # it measures until the others have answered, however late
            each.send_signal(signal.SIGINT)
    answers = [ended(each) for each in running]
    assert sorted(code for code, _ in answers) == [3, 3, 130], answers
    for (code, err), place in zip(answers, places, strict=True):
        if code == 3:
            assert "measured already, by process" in err and "of root" in err
            assert "diskproof run" in err and "--wait" in err
            assert {each.name for each in place.iterdir()} == {"images", "study.toml"}  # no store


def test_who_waits_begins_when_the_holder_is_killed(tmp_path: Path, host: Host) -> None:
    here, there = folders(tmp_path, "here", "there")
    holder = host.hold(here)
    waiting = host.run(there, "--wait")
    assert waiting.stderr
    line = waiting.stderr.readline()
    assert line.startswith("waiting for process ") and str(holder.pid) in line, line
    holder.kill()
    holder.wait()
    code, err = ended(waiting)
    assert code == 0 and err.startswith("waited "), err


def test_containers_and_other_users_share_it(tmp_path: Path, host: Host) -> None:
    here, there = folders(tmp_path, "here", "there")
    let_everybody_in(tmp_path)
    os.chown(there, 65534, 65534)
    holder = host.hold(here)
    try:
        code, err = ended(host.run(there, within=NOBODY))
        assert code == 3 and f"kill {holder.pid} (as root)" in err, err
        code, err = ended(host.run(there, within=CONTAINER))
        assert code == 3 and "a process that cannot be seen from here" in err, err
        assert "/proc/locks" in err
    finally:
        holder.kill()
        holder.communicate()
    theirs = host.hold(there, NOBODY)
    try:
        code, err = ended(host.run(here))
        assert code == 3 and f"by process {theirs.pid} of nobody" in err, err
        assert err.rstrip().endswith(f"to end it: kill {theirs.pid}")
    finally:
        theirs.kill()
        theirs.communicate()
