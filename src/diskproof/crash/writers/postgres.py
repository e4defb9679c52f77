"""PostgreSQL commits, one row each: on the host's recorded folder, or in a guest.

On the host: the cluster is made before the recording begins and is small (1 MiB of WAL a
segment); the server runs unprivileged, on a Unix socket in a folder in /tmp. A commit is promised
when the server has answered it; ``durable = write`` takes ``fsync=off``. A state is checked by a
server that recovers a copy of it, and by reading all rows; page checksums are on.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from diskproof.crash.writers import WriterContext, command
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.command import Limit, main
from diskproof.crash.writers.promised_rows import Found
from diskproof.errors import HostError, RunFailure
from diskproof.process.extras import require_extra
from diskproof.process.owner import hand_over, hand_over_tree
from diskproof.process.run_user import adopt_run_user, require_run_user
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import Process, run, start_process
from diskproof.records import Cell

NAME = "postgres"
FOLDER = "postgres"
USER = "diskproof"
START_SECONDS = 60.0
_PROGRAMS = Path("/usr/lib/postgresql")
# Small, so that states are; none of them changes what a commit means.
SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "4MB",
    "max_connections": "5",
    "max_wal_size": "8MB",
    "min_wal_size": "2MB",
    "wal_init_zero": "off",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "jit": "off",
}
_NAMED = 'mount --bind -- "$0" /etc/passwd && exec "$@"'
INITDB_OPTIONS = (
    *("-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--data-checksums"),
    *("--wal-segsize=1", "--no-instructions"),
)


class PostgresDatabase:
    """The cluster in its folder."""

    name = NAME

    def write(
        self,
        folder: Path,
        promise: Callable[[int], None],
        limit: Limit,
        settings: Mapping[str, str],
    ) -> None:
        """``settings`` are the server's. The cluster is made when the folder is empty."""
        import psycopg

        if any(folder.iterdir()):  # made by who waits for us
            adopt_run_user(folder.stat().st_uid)
        with start_server(folder, settings) as (_, url):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(rows.CREATE)
                insert = f"INSERT INTO {rows.TABLE} VALUES (%s, %s)"
                for number in limit.numbers():
                    connection.execute(insert, (number, rows.row_content(number)))
                    promise(number)

    def check(self, folder: Path, promised: int) -> Found:
        """A copy, recovered by a server of its own that syncs nothing, and read row by row."""
        import psycopg

        if not (folder / "PG_VERSION").is_file():
            return rows.all_lost(promised, "there is no cluster")
        hand_over_tree(folder)
        try:
            with (
                start_server(folder, {"fsync": "off"}) as (_, url),
                psycopg.connect(url) as connection,
            ):
                found = connection.execute("SELECT to_regclass(%s)", (rows.TABLE,)).fetchone()
                if found == (None,):
                    return rows.all_lost(promised, "the table is not there")
                left: dict[int, str] = dict(connection.execute(rows.SELECT).fetchall())
                return rows.judge_rows(left, promised)
        except (RunFailure, psycopg.Error) as error:
            return Found(rows.CORRUPTS, why=str(error))


def require_programs() -> Path:
    """The folder of PostgreSQL's server programs; they are not on PATH."""
    found = sorted(_PROGRAMS.glob("*/bin/postgres"))
    if not found:
        what, why = "PostgreSQL is not installed", f"no server program is in {_PROGRAMS}"
        raise HostError(what, why, "apt-get install postgresql")
    require_extra("postgres")
    return found[-1].parent


def make_cluster(folder: Path) -> None:
    """An empty cluster that belongs to the server's user."""
    folder.mkdir(exist_ok=True)
    hand_over(folder)
    argv = [str(require_programs() / "initdb"), *INITDB_OPTIONS, "-D", str(folder)]
    with start_scratch_dir() as room:
        prefix = server_user_args(room) if os.geteuid() == 0 else []
        run([*prefix, *argv], timeout=START_SECONDS, cwd=Path("/"))


def server_user_args(room: Path) -> list[str]:
    """Argv prefix for PostgreSQL, which refuses to run as root, and whose initdb refuses a user
    without a name: in a mount namespace of its own ours has one, from a file in ``room``."""
    user = str(require_run_user())
    names = room / "passwd"
    names.write_text(f"{USER}:x:{user}:{user}::/:/bin/false\n")
    names.chmod(0o644)
    return [
        *("unshare", "--mount", "--", "sh", "-c", _NAMED, str(names)),
        *("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"),
    ]


@contextmanager
def start_server(folder: Path, settings: Mapping[str, str]) -> Iterator[tuple[Process, str]]:
    """Serve a cluster; gives its process and the URL of its database.

    At the end it is killed, not asked: it was promised a crash. Raises RunFailure ``workload``
    when it does not come up.
    """
    programs = require_programs()
    if not any(folder.iterdir()):
        make_cluster(folder)
    with start_scratch_dir() as scratch:
        room = scratch / "pg"
        room.mkdir(0o700)
        hand_over(room)
        argv = [str(programs / "postgres"), "-D", str(folder), "-k", str(room)]
        for setting, value in {**SETTINGS, **settings}.items():
            argv += ["-c", f"{setting}={value}"]
        log = room / "log"
        starting = start_process(argv, name="postgres", log=log, cwd=room, confined=True)
        with starting as process:
            url = f"postgresql://{USER}@/postgres?host={room}"
            _wait_until_ready(process, url)
            yield process, url
            process.kill()


def _wait_until_ready(process: Process, url: str) -> None:
    import psycopg

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError as error:
            if process.wait(0.02) is not None or time.monotonic() > deadline:
                tail = process.read_log(2000).decode("utf-8", "replace").strip().splitlines()
                why = "\n".join([str(error), *tail[-5:]])
                raise RunFailure("workload", "PostgreSQL does not come up", why) from None


class PostgresWriter:
    """The writer ``postgres``."""

    def prepare(self, cell: Cell, folder: Path) -> None:
        """An empty cluster; initdb syncs it. Raises HostError without PostgreSQL."""
        if cell.level("frontend") == "guest":
            from diskproof.crash.writers.postgres_guest import prepare_disk

            prepare_disk(cell, folder)
        else:
            make_cluster(folder / FOLDER)

    def write(self, context: WriterContext) -> None:
        """Raises RunFailure ``workload``, ``space`` or ``guest``; HostError without PostgreSQL."""
        if context.cell.level("frontend") == "guest":
            from diskproof.crash.writers.postgres_guest import write_rows

            write_rows(context)
            return
        unsafe = ["fsync=off"] if context.cell.workload.option("durable") == "write" else []
        command.write_database(context, __name__, context.recording.folder / FOLDER, *unsafe)

    def check(self, cell: Cell) -> dict[str, object]:
        if cell.level("frontend") == "guest":
            from diskproof.crash.writers.ledger_fs import guest_check

            return guest_check(cell, NAME)
        argv = [*command.PYTHON, __name__, "check", FOLDER]
        return {"kind": "command", "argv": argv, "timeout_seconds": 120.0}


WRITER = PostgresWriter()

if __name__ == "__main__":
    sys.exit(main(PostgresDatabase(), sys.argv[1:]))
