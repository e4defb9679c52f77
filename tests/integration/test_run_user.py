"""The user without rights of a run: nobody else's, on a real host. Requires root."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.frontends.daemon import DaemonDrive
from diskproof.process.run_user import FOR_SERVICES, FORMER, OURS, adopt_run_user, require_run_user
from support.disks import start_drive

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")

_OWNER = """
import sys
from pathlib import Path
from diskproof.backings.place import Place, start_run_dir
from diskproof.errors import HostError
from diskproof.frontends.daemon import DaemonDrive
from diskproof.process.run_user import require_run_user
try:
    print(require_run_user(), flush=True)
    sys.stdin.readline()
    with start_run_dir(Place(Path(sys.argv[1]))) as folder:
        print(folder.stat().st_gid, flush=True)
except HostError as error:
    print(error.what, error.why, flush=True)
"""


@contextmanager
def owner(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A diskproof with its user drawn, which makes a run's folder after a line."""
    argv = [sys.executable, "-c", _OWNER, str(folder)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def attack(number: int, disk: Path, pid: int) -> list[str]:
    """What a process of a user can do to a disk under test, and to what serves it."""
    attacks: dict[str, Callable[[], object]] = {
        "read": lambda: disk.open("rb"),
        "write": lambda: disk.open("r+b"),
        "list": lambda: list(disk.parent.iterdir()),
        "descriptors": lambda: list(Path(f"/proc/{pid}/fd").iterdir()),
        "environment": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
        "memory": lambda: os.open(f"/proc/{pid}/mem", os.O_RDONLY),
        "signal": lambda: os.kill(pid, 0),
    }
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
        for name, attempt in attacks.items():
            with suppress(OSError):
                attempt()
                os.write(writing, f"{name}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        done = told.read().split()
    assert os.waitpid(child, 0)[1] == 0
    return done


def test_everybody_who_lives_has_another_user(tmp_path: Path) -> None:
    with owner(tmp_path) as (first, one), owner(tmp_path) as (second, two):
        assert len({one, two, require_run_user()}) == 3
        assert {one, two} <= set(OURS)
        assert [answer(first), answer(second)] == [str(one), str(two)]


@pytest.mark.parametrize("ids", ["--reuid", "--regid"])
def test_a_foreign_process_with_that_user_or_group_refuses_the_start(
    tmp_path: Path, ids: str
) -> None:
    with owner(tmp_path) as (process, number):
        argv = ["setpriv", ids, str(number), "--clear-groups", "--", "sleep", "600"]
        with subprocess.Popen(argv) as foreign:
            try:
                while f"\t{number}" not in Path(f"/proc/{foreign.pid}/status").read_text():
                    assert foreign.poll() is None
                told = answer(process)
            finally:
                foreign.kill()
        assert told.startswith(f"the user of this run is not alone process {foreign.pid} runs as")
        assert list(tmp_path.iterdir()) == []


def test_a_dead_process_that_nobody_has_waited_for_is_nobody(tmp_path: Path) -> None:
    """As orphans of a run are, until init looks."""
    with owner(tmp_path) as (process, number):
        argv = ["setpriv", "--reuid", str(number), "--clear-groups", "--", "true"]
        with subprocess.Popen(argv) as dead:
            while "State:\tZ" not in Path(f"/proc/{dead.pid}/status").read_text():
                time.sleep(0.01)
            assert f"\t{number}" in Path(f"/proc/{dead.pid}/status").read_text()
            assert "not alone" not in answer(process)


def test_neither_nobody_nor_another_run_reaches_the_disk_or_its_server(public_file: Path) -> None:
    public = public_file.parent
    with start_drive(public / "images", frontend="daemon", format="raw") as drive:
        assert isinstance(drive, DaemonDrive)
        image, pid = drive.context.image.path, drive.facts.pids[0]
        assert image.stat().st_uid == require_run_user()
        other = next(number for number in OURS if number != require_run_user())
        for number in (FORMER, 1234, other):
            assert attack(number, image, pid) == []
        # The same by the run's own user shows that these were attacks.
        assert {"read", "write", "signal"} <= set(attack(require_run_user(), image, pid))


_DRAW = """
from diskproof.errors import HostError
from diskproof.frontends.daemon import DaemonDrive
from diskproof.process.run_user import require_run_user
try:
    print(require_run_user())
except HostError as error:
    print(error.what)
"""


def draw_in(ids: str) -> str:
    """In a user namespace that has these ids."""
    argv = ["unshare", "--user", "--", "sh", "-c", 'echo; read go; exec "$@"', "sh"]
    with subprocess.Popen(
        [*argv, sys.executable, "-c", _DRAW],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline()
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(ids)
        return answer(process)


def test_a_container_with_few_ids_has_one_of_those_or_none() -> None:
    assert int(draw_in("0 0 65536")) in FOR_SERVICES
    assert draw_in("0 0 1") == "no user without rights can be had"


def test_only_drawn_users_are_adopted() -> None:
    for number in (0, 1000, OURS[0] - 1):
        with pytest.raises(HostError, match="not one of diskproof's"):
            adopt_run_user(number)
    mine = require_run_user()
    adopt_run_user(mine)
    assert require_run_user() == mine
