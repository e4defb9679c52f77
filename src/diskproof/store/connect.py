"""From a path or URL to an engine; what a database reports becomes an error with a way out."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from diskproof.errors import DiskproofError, HostError, UsageError
from diskproof.process.extras import require_extra
from diskproof.store.budget import VARIABLE
from diskproof.store.sqlite_file import sqlite_engine
from diskproof.units import render_bytes

ROOM_BYTES = 256 << 10
"""SQLite maps its shared memory file; where that cannot grow, the process would die by SIGBUS."""
CONNECT_SECONDS = 10
PG_SCHEMA = "diskproof"


class StoreAway(HostError):
    """The server of a store does not answer, for now at least."""


class StoreUrl:
    """Where a store is: a SQLite file (``path``) or a PostgreSQL database (``url``)."""

    def __init__(self, text: str) -> None:
        self.path: Path | None = None
        self.url: URL | None = None
        if "://" not in text:
            self.path = Path(text)
            return
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise UsageError("the store's URL cannot be read", hint=_URL_HINT) from None
        scheme = url.drivername.partition("+")[0]
        if scheme == "sqlite" and url.database:
            self.path = Path(url.database)
        elif scheme in ("postgresql", "postgres"):
            self.url = url.set(drivername="postgresql+psycopg")
        else:
            raise UsageError(f"no store can be kept in {scheme}://", hint=_URL_HINT)

    def __str__(self) -> str:
        """The place for people; never with a password."""
        if self.url is not None:
            return self.url.set(drivername="postgresql").render_as_string(hide_password=True)
        return str(self.path)

    @property
    def identity(self) -> str:
        """The place whatever folder it is named from; without a password."""
        return str(self) if self.path is None else str(self.path.resolve())

    @property
    def file(self) -> tuple[int, int] | None:
        """What tells the file that has the name now from others; None for none."""
        with suppress(OSError):
            if self.path is not None:
                seen = self.path.stat()
                return seen.st_dev, seen.st_ino
        return None


_URL_HINT = "name a file, or postgresql://USER@HOST/DATABASE"


def make_engine(place: StoreUrl, *, create: bool) -> Engine:
    """An engine for the store. Nothing is connected yet, but a missing file is noticed.

    Raises UsageError when there is no store, HostError when its folder does not exist.
    """
    if place.url is not None:
        require_extra("postgres")
        options = {"connect_timeout": CONNECT_SECONDS}
        engine = create_engine(place.url, connect_args=options, pool_pre_ping=True)
        return engine.execution_options(schema_translate_map={None: PG_SCHEMA})
    assert place.path is not None
    return sqlite_engine(_sqlite_uri(place.path, create))


def _sqlite_uri(path: Path, create: bool) -> str:
    """SQLite's URI for the file; one that cannot be written is opened for reading."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file", "a store is one file", _URL_HINT)
    if not path.exists() and not create:
        raise UsageError(
            f"there is no store at {path}", hint="name one with --store, or `diskproof run` a study"
        )
    if not path.exists() and not path.parent.is_dir():
        raise HostError(f"the store {path} cannot be made", f"{path.parent} is not a folder")
    if create:
        _require_room(path)
    mode = "mode=rwc" if create else "mode=rw"
    if path.exists() and not (_is_writable(path) and _room_bytes(path) >= ROOM_BYTES):
        # A clean store has no write-ahead log beside it and can be read without making one.
        log = path.with_name(path.name + "-wal")
        clean = not log.exists() or log.stat().st_size == 0
        mode = "mode=ro&immutable=1" if clean else "mode=ro"
    return f"file:{quote(str(path.absolute()))}?{mode}"


def _require_room(path: Path) -> None:
    """Raises HostError when the store could not grow at all."""
    free = _room_bytes(path)
    if free < ROOM_BYTES:
        why = f"{render_bytes(free)} are free"
        raise HostError(f"no space left for the store {path}", why, _SPACE_HINT)


def _room_bytes(path: Path) -> int:
    room = os.statvfs(path.absolute().parent)
    return room.f_bavail * room.f_frsize


def _is_writable(path: Path) -> bool:
    """Whether SQLite could write the file and make its log beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def remove_unused(path: Path) -> None:
    """Take a SQLite store without studies away, unless somebody else has it open: then its log
    cannot be ended."""
    with suppress(sqlite3.Error, OSError), closing(sqlite3.connect(path, timeout=0)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "study" in tables and connection.execute("SELECT 1 FROM study LIMIT 1").fetchone():
            return
        if connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",):
            path.unlink()


@contextmanager
def explained(place: StoreUrl) -> Iterator[None]:
    """Turn the database's errors inside the block into ours; those that a signal left are one."""
    try:
        with _signals_first():
            yield
    except DBAPIError as error:
        raise _explain(error.orig, place) from error
    except UnicodeDecodeError:  # SQLite's message names something in the file
        raise UsageError(f"the store {place} is damaged", _NO_TEXT, _RECOVER_HINT) from None
    except sqlite3.Error as error:  # rows are read from its own cursor
        raise _explain(error, place) from error


@contextmanager
def _signals_first() -> Iterator[None]:
    """What is undone for a signal may fail (a rollback of a connection that is closed by then, an
    assertion of a transaction that is half ended), and its error would stand in the signal's place.
    """
    try:
        yield
    except Exception as error:
        if _hides_signal(error):
            raise KeyboardInterrupt from error
        raise


def _hides_signal(error: BaseException | None) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _explain(cause: BaseException | None, place: StoreUrl) -> DiskproofError:
    if getattr(cause, "sqlite_errorname", None) == "SQLITE_INTERRUPT":
        raise KeyboardInterrupt  # what a signal raised is gone by now
    first_line = str(cause).strip().partition("\n")[0]
    name = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    for prefixes, kind, what, hint in _EXPLANATIONS:
        if name.startswith(prefixes):
            return kind(what.format(place=place), first_line, hint)
    if place.path is not None and not name and "Could not decode" in first_line:
        return UsageError(f"the store {place} is damaged", _NO_TEXT, _RECOVER_HINT)
    if place.url is not None and not name:
        return StoreAway(f"the store {place} cannot be reached", first_line, _REACH_HINT)
    return HostError(f"the store {place} failed", f"{name} {first_line}".strip())


_RECOVER_HINT = "restore it from a copy; `sqlite3 FILE .recover` may save what is left"
_NO_TEXT = "a text in it is not UTF-8"
_REACH_HINT = "check that the server runs, and the host, user and database in the URL"
_SPACE_HINT = "make room, then give the same command again: finished runs are kept"

# Names of SQLite's result codes and PostgreSQL's SQLSTATE classes, most telling first.
_EXPLANATIONS: tuple[tuple[tuple[str, ...], type[DiskproofError], str, str], ...] = (
    (("SQLITE_NOTADB",), UsageError, "{place} is not a diskproof store", _URL_HINT),
    (
        ("SQLITE_CORRUPT",),
        UsageError,
        "the store {place} is damaged",
        _RECOVER_HINT,
    ),
    (
        ("SQLITE_TOOBIG",),
        UsageError,
        "the store {place} holds a value that is larger than its column may be",
        f"if you trust who made it, set {VARIABLE}=2GiB",
    ),
    (
        ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100"),
        HostError,
        "no space left for the store {place}",
        _SPACE_HINT,
    ),
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"),
        HostError,
        "the store {place} is locked by another process",
        "wait for it to end, or use another store",
    ),
    (
        ("SQLITE_READONLY", "25006"),
        HostError,
        "the store {place} is read-only",
        "allow writing to the file and its folder, or name another with --store",
    ),
    (
        ("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"),
        HostError,
        "the store {place} cannot be opened",
        "check the permissions of the file and of its folder",
    ),
    (("SQLITE_IOERR",), HostError, "the store {place} cannot be read or written", "check the disk"),
    (("28", "42501"), HostError, "the store {place} denies access", "check user and password"),
    (("08", "57P"), StoreAway, "the store {place} cannot be reached", _REACH_HINT),
    (("3D000",), HostError, "the store {place} cannot be reached", _REACH_HINT),
)
