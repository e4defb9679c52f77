"""iSCSI with both ends in the kernel: its flushes counted, and what a killed owner leaves of it.

Requires root, open-iscsi and a kernel with LIO and iscsi_tcp; also run inside a guest that has them
(tests/vm/test_backings_guest.py).
"""

from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, lio, start_place
from diskproof.backings.consent import give_consent
from diskproof.backings.initiator import find_session
from diskproof.errors import HostError
from diskproof.host.janitor import sweep
from support.volumes import (
    MIB,
    backing,
    find_missing,
    folder,
    lent_device,
    start_owner,
    write_and_read,
)

MISSING = find_missing(lio.require_lio)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
SIZE = str(32 * MIB)
EXPECTED = {"fileio": (5, 5, 5), "fileio-wb": (5, 5, 0), "blockio": (5, 5, 0)}


def targets() -> list[str]:
    """All that the kernel's target holds for us."""
    fabric = [*(lio.TARGET / "iscsi").glob("iqn.*"), *(lio.TARGET / "core").glob("*_*/diskproof*")]
    return sorted(map(str, fabric))


def assert_clean(path: Path) -> None:
    assert targets() == []
    assert list(path.glob("**/diskproof-*")) == []


@pytest.mark.parametrize("store", EXPECTED)
def test_a_disk_keeps_what_is_written_and_its_flushes_are_counted(
    tmp_path: Path, store: str
) -> None:
    with start_place(backing("lio", folder(tmp_path), store=store, size=SIZE), NO_CONSENT) as place:
        assert place.device and place.free_bytes() == 32 * MIB
        write_and_read(place)
        told = [int(part.split()[0]) for part in place.name.partition("; ")[2].split(": ")[1:]]
        assert tuple(told) == EXPECTED[store], place.name
    assert_clean(tmp_path)


def test_nothing_is_kept_without_a_store(tmp_path: Path) -> None:
    with start_place(
        backing("lio", folder(tmp_path), store="nullio", size=SIZE), NO_CONSENT
    ) as place:
        assert place.device and "not measured" in place.name and place.below == ()
    assert_clean(tmp_path)


def test_a_target_that_lies_about_its_cache_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data in the page cache, and no write cache told of: an fsync has nothing to send."""
    lying = lio.Backstore("fileio", ",fd_buffered_io=1", write_cache=False)
    monkeypatch.setitem(lio.STORES, "fileio", lying)
    with start_place(
        backing("lio", folder(tmp_path), store="fileio", size=SIZE), NO_CONSENT
    ) as place:
        assert "flushes passed on: 0 of 5" in place.name
        assert "plain writes made durable: 0 of 5" in place.name
    assert_clean(tmp_path)


def test_a_device_below(tmp_path: Path) -> None:
    """A whole device goes with the store that takes one."""
    with lent_device(tmp_path / "lent.img") as device:
        below = backing("device", folder(tmp_path), path=str(device))
        consent = give_consent([below])
        with start_place(backing("lio", below, store="blockio", size=SIZE), consent) as place:
            assert place.free_bytes() == 64 * MIB
            write_and_read(place)
        with pytest.raises(HostError, match="cannot be made on"):
            with start_place(backing("lio", below, store="fileio", size=SIZE), consent):
                pass
    assert_clean(tmp_path)


@pytest.mark.parametrize("store", ["fileio-wb", "blockio"])
def test_a_sweep_takes_away_what_a_killed_owner_has_left(tmp_path: Path, store: str) -> None:
    with start_owner(backing("lio", folder(tmp_path), store=store, size=SIZE)):
        (name,) = [path.name for path in (lio.TARGET / "iscsi").glob("iqn.*")]
        assert find_session(name)
    assert targets() != [], "the kernel keeps it"
    swept = sweep([tmp_path])
    assert swept and [each.kept for each in swept] == [""] * len(swept)
    assert find_session(name) is None
    assert_clean(tmp_path)
