"""The schema of a store: made once, and checked whenever a store is opened."""

from sqlalchemy import Connection, Engine, insert, inspect, select, text, update
from sqlalchemy.schema import CreateSchema

from diskproof.errors import HostError, UsageError
from diskproof.store.connect import PG_SCHEMA, StoreUrl
from diskproof.store.parts import KINDS
from diskproof.store.sqlite_file import refuse_store, require_plain_tables
from diskproof.store.tables import METADATA, OLDEST_VERSION, SCHEMA, SCHEMA_VERSION

_CREATE_LOCK = 0x6469736B  # an advisory lock's number, any constant will do
_ALWAYS = ("study", "cell", "study_cell", "host", "progress")


def require_schema(engine: Engine, place: StoreUrl, *, create: bool) -> int:
    """Check that a store that we can read is there, and give its version; with ``create`` make
    one where there is none, and bring an older one up to ours.

    Raises UsageError for something else, or for a store of a newer version.
    """
    with engine.connect() as connection:
        version = _find_version(connection, place)
    if version is None and create:
        _create_tables(engine, place)
        return SCHEMA_VERSION
    if version is None:
        raise UsageError(
            f"{place} is not a diskproof store", "it has no table of ours", "name another store"
        )
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        raise UsageError(
            f"the store {place} has version {version}",
            f"this diskproof reads versions {OLDEST_VERSION} to {SCHEMA_VERSION}",
            "use the diskproof that made it, or a newer one",
        )
    if create and version < SCHEMA_VERSION:
        _bring_up_to_date(engine, place)
        return SCHEMA_VERSION
    return version


def _bring_up_to_date(engine: Engine, place: StoreUrl) -> None:
    """Add the tables that later versions have; what is stored stays as it is."""
    with engine.connect() as connection:
        connection.execution_options(begin="BEGIN IMMEDIATE")
        with connection.begin():
            if place.url is not None:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})"))
            METADATA.create_all(connection)
            connection.execute(update(SCHEMA).values(version=SCHEMA_VERSION))


def _find_version(connection: Connection, place: StoreUrl) -> int | None:
    """The schema's version; None for a database that has none. Raises UsageError for a file that
    is not to be asked for anything."""
    schema = PG_SCHEMA if place.url is not None else None
    if not inspect(connection).has_table(SCHEMA.name, schema=schema):
        return None
    held = set(METADATA.tables)
    if place.path is not None:
        held = require_plain_tables(connection, METADATA.tables.values(), str(place))
    versions = connection.scalars(select(SCHEMA.c.version).limit(2)).all()
    if len(versions) != 1 or not isinstance(versions[0], int):
        raise refuse_store(str(place), "its version is not one number")
    needed = {table for kind in KINDS if kind.since <= versions[0] for table in kind.tables}
    if missing := sorted({*_ALWAYS, *needed} - held):
        raise refuse_store(str(place), f"it has no table {missing[0]}")
    return versions[0]


def _create_tables(engine: Engine, place: StoreUrl) -> None:
    """Make the tables, once, however many processes try."""
    if place.path is not None:
        _require_empty(engine, place)
        _start_log(engine, place)
    with engine.connect() as connection:
        connection.execution_options(begin="BEGIN IMMEDIATE")
        _create_tables_once(connection, place)


def _start_log(engine: Engine, place: StoreUrl) -> None:
    """Switch to a write-ahead log, for good: readers then never wait for a writer."""
    with engine.connect() as connection:
        connection.execution_options(begin="")
        mode = connection.scalar(text("PRAGMA journal_mode = WAL"))
    if mode != "wal":
        raise HostError(
            f"the store {place} cannot be made",
            "its file system has no shared memory for SQLite's write-ahead log",
            "put the store on a local disk with --store",
        )


def _create_tables_once(connection: Connection, place: StoreUrl) -> None:
    with connection.begin():
        if place.url is not None:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})"))
            connection.execute(CreateSchema(PG_SCHEMA, if_not_exists=True))
        if _find_version(connection, place) is None:
            METADATA.create_all(connection)
            connection.execute(insert(SCHEMA).values(version=SCHEMA_VERSION))


def _require_empty(engine: Engine, place: StoreUrl) -> None:
    """Never add our tables to somebody else's SQLite file."""
    with engine.connect() as connection:
        others = [name for name in inspect(connection).get_table_names() if name != SCHEMA.name]
        if others and _find_version(connection, place) is None:
            raise UsageError(
                f"{place} is not a diskproof store",
                f"it holds other tables: {', '.join(others[:3])}",
                "name another file with --store",
            )
