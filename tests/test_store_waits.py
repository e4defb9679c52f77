"""A store that another process has to itself."""

import sqlite3
import threading
from pathlib import Path

import pytest

from diskproof.store import open_store
from test_lab import STUDY


def test_a_store_that_another_process_writes_to_is_waited_for_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(str(path), create=True) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1.5, lambda: other.execute("ROLLBACK"))
        release.start()
        store.add_study(STUDY)
        release.join()
        other.close()
        assert store.find_study(STUDY.id) is not None
        store.add_study(STUDY)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == "another process has the store: waiting up to 30 s for it"
