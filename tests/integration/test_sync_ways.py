"""sync drop as its own check and real programs see it. Needs the native programs; cachestat(2).

What a dropped run writes must not be on the disk when it ends, and must be readable all the same.
"""

import ctypes
import errno
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from diskproof.process import start as proc
from diskproof.process.native import require_native
from support.databases import make_cluster, start_server
from support.running import mounted
from support.syncing import (
    SQLITE_WRITER,
    build_c,
    build_go,
    clone_args,
    dpkg_args,
    make_packages,
    make_repository,
    unsynced_pages,
)

WAYS = str(require_native("diskproof-sync-ways"))
DROP = str(require_native("diskproof-sync-drop"))
SECONDS = 900.0
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
both = pytest.mark.parametrize("options", [(), ("--preload",)], ids=["default", "preload"])


@pytest.fixture
def disk() -> Iterator[Path]:
    """An empty folder that is not in memory, for everybody."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="diskproof-test-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture(scope="module")
def drop_for_all() -> Iterator[str]:
    """sync drop where every user may start it: a checkout may be root's alone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="diskproof-test-") as folder:
        Path(folder).chmod(0o755)
        for name in ("sync-drop", "sync-ways", "sync-ways-dynamic"):
            shutil.copy(require_native(f"diskproof-{name}"), folder)
        shutil.copy(require_native("libdiskproof_sync_drop.so"), folder)
        yield f"{folder}/diskproof-sync-drop"


def check(argv: Sequence[str]) -> tuple[int, dict[str, str], dict[str, list[str]]]:
    """Exit code; results of the ways; of each error what differs."""
    done = proc.run(argv, timeout=SECONDS, check=False)
    report = json.loads(done.stdout)
    ways = {way["id"]: way["result"] for way in report["ways"]}
    errors = {row["id"]: row["differences"] for row in report["errno"]}
    assert len(ways) == 23 and len(errors) == 15
    assert report["stopped"] == list(ways.values()).count("stopped")
    assert report["errno_same"] == list(errors.values()).count([])
    return done.returncode, ways, errors


def test_without_a_dropper_every_way_reaches_the_disk(disk: Path) -> None:
    code, ways, errors = check([WAYS, "--json", "--dir", str(disk)])
    assert code == 0
    may_be_missing = [way for way in ways if way.startswith(("io_uring", "chattr", "openat2"))]
    for way, result in ways.items():
        allowed = {"reached", "not_supported"} if way in may_be_missing else {"reached"}
        assert result in allowed, way
    assert not any(errors.values())
    assert not list(disk.iterdir())


@both
def test_what_is_promised_is_stopped(disk: Path, options: Sequence[str]) -> None:
    code, ways, errors = check([DROP, "--check", "--json", "-", "--dir", str(disk), *options])
    assert errors == dict.fromkeys(errors, [])
    assert code == 0, ways
    least = 17 if options else 20
    assert sum(result != "reached" for result in ways.values()) >= least, ways
    assert not list(disk.iterdir())


@needs_root
@both
def test_no_privileges_are_needed(disk: Path, drop_for_all: str, options: Sequence[str]) -> None:
    check_args = [drop_for_all, "--check", "--json", "-", "--dir", str(disk), *options]
    code, ways, errors = check([*NOBODY, *check_args])
    assert (code, errors) == (0, dict.fromkeys(errors, [])), ways
    assert (code, ways, errors) == check(check_args), "root is treated otherwise"


def test_all_ways_are_stopped_when_io_uring_is_hidden(disk: Path) -> None:
    code, ways, errors = check([DROP, "--check", "--json", "-", "--dir", str(disk), "--strict"])
    assert set(ways.values()) <= {"stopped", "not_supported"}
    assert (code, errors) == (0, dict.fromkeys(errors, []))


@pytest.mark.parametrize("column, options", [(2, ()), (3, ("--strict",)), (4, ("--preload",))])
def test_the_page_says_what_is_seen(disk: Path, column: int, options: Sequence[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sync-ways.md").read_text()
    told = {}
    for line in page.splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        if len(cells) == 6 and cells[column] in ("stopped", "reached"):
            told[cells[0]] = cells[column]
    _, ways, _ = check([DROP, "--check", "--json", "-", "--dir", str(disk), *options])
    seen = {way: told[way] if result == "not_supported" else result for way, result in ways.items()}
    assert seen == told


@needs_root
def test_what_somebody_else_syncs_all_the_time_reached_nothing_by_the_way_tried(
    tmp_path: Path,
) -> None:
    """On a file system of its own: elsewhere it would be somebody else to other tests."""
    image, ended = tmp_path / "image", Event()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    proc.run(["mkfs.ext4", "-q", str(image)], timeout=SECONDS)
    with mounted(tmp_path / "mounted", "-o", "loop", str(image)) as folder:
        other = Thread(target=sync_until, args=(folder, ended))
        other.start()
        try:
            _, ways, _ = check([DROP, "--check", "--json", "-", "--dir", str(folder), "--strict"])
        finally:
            ended.set()
            other.join()
    told = {result for way, result in ways.items() if way not in ("sync", "syncfs")}
    assert "stopped" in told
    assert told <= {"stopped", "not_supported", "cannot_tell"}, ways


def sync_until(folder: Path, ended: Event) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while not ended.is_set():
            assert libc.syncfs(descriptor) == 0
    finally:
        os.close(descriptor)


def test_a_folder_in_memory_proves_nothing() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        done = proc.run([WAYS, "--dir", folder], timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (3, b"")
    assert "nothing can be proved" in done.error_text and "--dir" in done.error_text


def test_a_dropper_under_the_check_is_noticed(disk: Path) -> None:
    """Started under a dropper the check could only say "stopped", whatever it checks."""
    argv = [DROP, "--quiet", "--", WAYS, "--dir", str(disk), "--", "env"]
    done = proc.run(argv, timeout=SECONDS, check=False)
    assert done.returncode == 3 and "without a dropper" in done.error_text


@pytest.mark.parametrize(
    ("folder", "reason"), [("/nowhere", "No such file"), ("/proc", "No such file")]
)
def test_a_folder_that_cannot_be_written(folder: str, reason: str) -> None:
    done = proc.run([WAYS, "--dir", folder], timeout=SECONDS, check=False)
    assert done.returncode == 3 and reason in done.error_text and "--dir" in done.error_text


def test_a_dropper_that_does_not_start_anything_is_no_success(disk: Path) -> None:
    argv = [WAYS, "--json", "--dir", str(disk), "--", "/nowhere/dropper"]
    code, ways, errors = check(argv)
    assert code == 1 and set(ways.values()) <= {"cannot_tell", "not_supported"}
    assert all("does not start" in words[0] for words in errors.values())


def test_a_dropper_that_turns_errors_into_success_is_found(disk: Path) -> None:
    """A library of two lines in the manner of the careless ones."""
    source, library = disk / "eat.c", disk / "eat.so"
    source.write_text("int fsync(int fd) { return 0; }\nvoid sync(void) {}\n")
    proc.run(["cc", "-shared", "-o", str(library), str(source)], timeout=SECONDS)
    code, ways, errors = check(
        [WAYS, "--json", "--dir", str(disk), "--", "env", f"LD_PRELOAD={library}"]
    )
    assert code == 1
    assert {way for way, result in ways.items() if result == "stopped"} == {"fsync", "sync"}
    wrong = {id for id, differences in errors.items() if differences}
    assert wrong == {"fsync-closed", "path-only", "pipe", "socket", "terminal"}
    assert all(words.startswith("dynamic fsync: 0 instead") for words in errors["pipe"])


def find_unsynced(place: Path) -> int:
    """Pages of a file, or of all files below a folder, that are not on the disk."""
    paths = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    try:
        return sum(map(unsynced_pages, paths))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            pytest.skip("needs cachestat(2), Linux 6.5")
        raise


def run_dropped(argv: Sequence[str], options: Sequence[str] = ()) -> str:
    """Run a command whose syncs are dropped; what it printed."""
    return proc.run([DROP, "--quiet", *options, "--", *argv], timeout=SECONDS).text


def run_until_unsynced(disk: Path, run: Callable[[Path], Path]) -> Path:
    """Run something in an empty folder; what it names must not be on the disk then.

    Somebody else's sync of the whole host may have written it: then once more, a few times.
    """
    for number in range(20):
        folder = disk / f"try-{number}"
        folder.mkdir()
        if find_unsynced(run(folder)) > 0:
            return folder
    raise AssertionError("it was on the disk each time")


def test_a_static_program(disk: Path) -> None:
    check_program(disk, [str(build_c(disk, static=True))], ["0", "wf"])


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go (apt-get install golang-go)")
def test_a_program_in_go(disk: Path) -> None:
    check_program(disk, [str(build_go(disk))], ["0"])


def check_program(disk: Path, program: list[str], words: list[str]) -> None:
    """What it syncs is on the disk; dropped it is not, and is the same."""
    synced = disk / "synced"
    proc.run([*program, str(synced), *words], timeout=SECONDS)
    assert find_unsynced(synced) == 0

    def run(folder: Path) -> Path:
        run_dropped([*program, str(folder / "dropped"), *words])
        return folder / "dropped"

    dropped = run_until_unsynced(disk, run) / "dropped"
    assert dropped.read_bytes() == synced.read_bytes() == bytes(4096)


@both
@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_sqlite_keeps_what_it_committed(disk: Path, options: Sequence[str], journal: str) -> None:
    """Until a power cut, that is."""

    def run(folder: Path) -> Path:
        words = [str(folder / "db"), "0", journal]
        run_dropped([sys.executable, "-c", SQLITE_WRITER, *words], options)
        return folder / "db"

    with closing(sqlite3.connect(run_until_unsynced(disk, run) / "db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT n, text FROM t").fetchall() == [(1, "x" * 100)]


@both
@pytest.mark.parametrize("method", ["fdatasync", "open_datasync"])
def test_postgres_keeps_what_it_committed_when_its_processes_are_killed(
    cluster: Path, disk: Path, drop_for_all: str, options: Sequence[str], method: str
) -> None:
    prefix = [drop_for_all, "--quiet", *options, "--"]
    with start_server(cluster, f"wal_sync_method={method}", prefix=prefix) as server:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS t")
            connection.execute("CREATE TABLE t (n int)")

            def run(folder: Path) -> Path:
                connection.execute("INSERT INTO t SELECT generate_series(1, 999)")
                return cluster / "data" / "pg_wal"

            tries = int(run_until_unsynced(disk, run).name.removeprefix("try-")) + 1
        os.kill(read_postmaster(cluster), signal.SIGKILL)
        assert server.process.wait(SECONDS) == 128 + signal.SIGKILL
    with start_server(cluster) as server, psycopg.connect(server.url("postgres")) as connection:
        count = connection.execute("SELECT sum(n), count(*) FROM t").fetchone()
        assert count == (tries * 999 * 1000 // 2, tries * 999)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with make_cluster(Path("/var/tmp")) as folder:
        yield folder


def read_postmaster(cluster: Path) -> int:
    """The server's process id: the process we started is its dropper."""
    return int((cluster / "data" / "postmaster.pid").read_text().split()[0])


@both
def test_a_clone_that_git_syncs(disk: Path, options: Sequence[str]) -> None:
    repository = make_repository(disk, 200)

    def run(folder: Path) -> Path:
        run_dropped(clone_args(repository, folder / "clone"), options)
        return folder / "clone" / ".git" / "objects"

    clone = run_until_unsynced(disk, run) / "clone"
    proc.run(["git", "-C", str(clone), "fsck", "--full", "--strict"], timeout=SECONDS)
    names = {path.name for path in clone.glob("file-*")}
    assert names == {path.name for path in repository.glob("file-*")} and len(names) == 200


@needs_root
@both
def test_packages_that_dpkg_installs(disk: Path, options: Sequence[str]) -> None:
    packages = make_packages(disk, 3, 5)

    def run(folder: Path) -> Path:
        run_dropped(dpkg_args(folder / "root", packages), options)
        return folder / "root" / "usr"

    root = run_until_unsynced(disk, run) / "root"
    assert proc.run(["dpkg", f"--root={root}", "--audit"], timeout=SECONDS).stdout == b""
    argv = ["dpkg-query", f"--root={root}", "--show", "--showformat=${db:Status-Abbrev}"]
    assert proc.run(argv, timeout=SECONDS).text.split() == ["ii"] * 3
    assert len(list(root.glob("usr/share/*/file-*"))) == 3 * 5
