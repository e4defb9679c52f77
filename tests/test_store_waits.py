"""A store that another process has to itself."""

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from types import FrameType

import pytest

from diskproof.store import open_store, sqlite_file
from test_lab import STUDY


def test_a_store_that_another_process_writes_to_is_waited_for_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.sqlite"
    with open_store(str(path), create=True) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")

        def give_back() -> None:
            while not caplog.records:
                time.sleep(0.01)
            other.execute("ROLLBACK")

        release = threading.Thread(target=give_back, daemon=True)
        release.start()
        store.add_study(STUDY)
        release.join()
        other.close()
        assert store.find_study(STUDY.id) is not None
        store.add_study(STUDY)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == "another process has the store: waiting up to 30 s for it"


def test_a_signal_at_any_moment_of_a_transaction_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite swallows what its progress handler raises and answers SQLITE_INTERRUPT."""
    steps: Iterator[int] = repeat(0)

    def hear() -> int:
        if next(steps, 0):
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(sqlite_file, "_go_on", hear)
    monkeypatch.setattr(sqlite_file, "SIGNAL_STEPS", 1)
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        for moment in range(60):
            steps = chain(repeat(0, moment), [1])
            with pytest.raises(KeyboardInterrupt):
                store.add_study(STUDY)
            assert next(steps, None) is None
        assert store.find_study(STUDY.id) is None
        store.add_study(STUDY)
        assert store.find_study(STUDY.id) is not None


class AtLine:
    """SIGINT in the middle of what is called: at each ``step``th line of Python, one a call."""

    def __init__(self, step: int) -> None:
        self.step, self.at, self.lines = step, 0, 0

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self._trace

    def tries(self, call: Callable[[], object]) -> Iterator[None]:
        """Until a call ends before its line comes."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
        try:
            while self.lines >= self.at:
                self.at, self.lines = self.at + self.step, 0
                with suppress(KeyboardInterrupt):
                    sys.settrace(self._trace)
                    call()
                sys.settrace(None)
                yield
        finally:
            sys.settrace(None)
            signal.signal(signal.SIGINT, before)


def test_a_signal_at_any_line_is_a_signal(tmp_path: Path) -> None:
    """Wherever it comes, in SQLAlchemy's own lines too, and however it is undone there."""
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        tried = list(AtLine(7).tries(lambda: store.add_study(STUDY)))
        assert len(tried) > 100
        assert store.find_study(STUDY.id) is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_store_that_was_made_for_nothing_is_gone_wherever_the_signal_comes(
    tmp_path: Path,
) -> None:
    def make() -> None:
        with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
            store.studies()
            raise KeyboardInterrupt

    left = [list(tmp_path.iterdir()) for _ in AtLine(997).tries(make)]
    assert len(left) > 50 and not any(left)
