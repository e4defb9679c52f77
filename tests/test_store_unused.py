"""A store that was made and never used."""

from pathlib import Path

import pytest

from diskproof.errors import UsageError
from diskproof.store import open_store
from test_lab import STUDY


def test_a_store_that_a_refusal_left_empty_is_gone(tmp_path: Path) -> None:
    """Not one that was there before, holds a study, or is open elsewhere."""
    made, used, shared = (tmp_path / f"{name}.sqlite" for name in ("made", "used", "shared"))
    for path in (made, used, shared):
        with pytest.raises(UsageError), open_store(str(path), create=True) as store:
            if path == used:
                store.add_study(STUDY)
            if path == shared:
                other = open_store(str(path))
                assert other.studies() == []
            raise UsageError("refused")
    other.close()
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == [
        "shared.sqlite",
        "used.sqlite",
    ]
    with pytest.raises(UsageError), open_store(str(shared), create=True):
        raise UsageError("refused")
    assert shared.exists()
