"""What a PostgreSQL server holds for us may come from a stranger, too."""

import pytest
from sqlalchemy import text

from diskproof.errors import UsageError
from diskproof.store import open_store
from support.databases import make_cluster, start_server
from test_store import EMPTY, FULL, HOST


def test_what_is_longer_than_its_column_is_not_fetched() -> None:
    with make_cluster() as folder, start_server(folder, "fsync=off") as server:
        url = server.new_database()
        with open_store(url, create=True) as store:
            store.add_study(EMPTY)
            store.add_host(HOST)
            store.add_run(FULL)
            with store._writing() as connection:
                longer = {"x": "x" * 9_000_000}
                connection.execute(text("update diskproof.cell set levels = :x"), longer)
        with open_store(url) as store:
            assert store.series_of(FULL.id) == FULL.series
            with pytest.raises(UsageError, match="levels of cell holds 9000000 bytes"):
                store.run(FULL.id)
