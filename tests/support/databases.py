"""A PostgreSQL server of a test's own: unprivileged, in a folder in /tmp, on a Unix socket only."""

import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from diskproof.crash.writers.postgres import server_user_args
from diskproof.process.owner import hand_over
from diskproof.process.start import Process, run, start_process

USER = "diskproof"
DEADLINE = 60.0
_COUNTER = itertools.count()


def find_programs() -> Path | None:
    """The folder of PostgreSQL's server programs; they are not on PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


class Server:
    """A running server. ``kill`` ends it as a power cut would, for its processes."""

    def __init__(self, folder: Path, process: Process) -> None:
        self.folder = folder
        self.process = process

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of a database that is empty."""
        name = f"test{next(_COUNTER)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # our own counter, no quoting needed
        return self.url(name)

    def kill(self) -> None:
        """Once: the number may be another's afterwards."""
        if self.process.wait(0) is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)

    def wait_until_recovered(self) -> None:
        """After a crash, which the server itself may not have noticed yet."""
        deadline = time.monotonic() + DEADLINE
        while True:
            log = self.process.read_log()
            _, crashed, after = log.rpartition(b"was terminated by signal 9")
            if crashed and b"is ready to accept connections" in after:
                return
            assert time.monotonic() < deadline, log.decode()
            time.sleep(0.05)

    def wait_until_ready(self) -> None:
        """Until it takes connections for the first time."""
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or self.process.wait(0.05) is not None:
                    raise AssertionError(self.process.read_log().decode()) from error


@contextmanager
def make_cluster(parent: Path | None = None) -> Iterator[Path]:
    """A folder with an empty database cluster, removed at the end."""
    programs = find_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="diskproof-pg-", dir=parent))
    try:
        prefix = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            prefix = server_user_args(folder)
            hand_over(folder)
        options = ["-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"]
        argv = [*prefix, str(programs / "initdb"), *options, "-D", str(folder / "data")]
        run(argv, timeout=DEADLINE, cwd=folder)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def start_server(folder: Path, *settings: str, prefix: Sequence[str] = ()) -> Iterator[Server]:
    """Serve a cluster for the length of a ``with`` block; ``settings`` are like ``fsync=off``.

    ``prefix`` is what starts the server instead of us, such as a program that drops its syncs.
    """
    programs = find_programs()
    assert programs is not None
    argv = [*prefix, str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
    for setting in ("listen_addresses=", "unix_socket_permissions=0700", *settings):
        argv += ["-c", setting]
    log = folder / "log"
    with start_process(argv, name="postgres", log=log, cwd=folder, confined=True) as process:
        server = Server(folder, process)
        server.wait_until_ready()
        yield server
        if process.poll() is None:
            os.kill(process.pid, signal.SIGINT)  # its fast way to end: clients are cut off
            process.wait(DEADLINE)
