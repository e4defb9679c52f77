"""Pools made for a study. Requires root, zfsutils-linux and the module zfs; udev for volumes."""

from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, start_place
from diskproof.backings.zfs import require_zfs
from diskproof.host.janitor import sweep
from diskproof.process.start import run
from support.volumes import MIB, backing, find_missing, folder, start_owner, write_and_read

MISSING = find_missing(require_zfs)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def pools() -> list[str]:
    return run(["zpool", "list", "-H", "-o", "name"], timeout=60).text.split()


def test_a_volume_is_made_used_and_gone(tmp_path: Path) -> None:
    before = pools()
    given = {"size": str(64 * MIB), "volblocksize": "8192", "sync": "always"}
    with start_place(backing("zfs", folder(tmp_path), **given), NO_CONSENT) as place:
        assert "volblocksize=8K, sync=always" in place.name
        assert place.free_bytes() == 64 * MIB
        write_and_read(place)
    assert pools() == before and list(tmp_path.iterdir()) == []


def test_a_dataset_is_made_used_and_gone(tmp_path: Path) -> None:
    before = pools()
    given = {"type": "dataset", "size": str(64 * MIB), "compression": "off"}
    with start_place(backing("zfs", folder(tmp_path), **given), NO_CONSENT) as place:
        assert "recordsize=128K" in place.name and "compression=off" in place.name
        (place.folder / "file").write_bytes(b"kept there")
    assert pools() == before and list(tmp_path.iterdir()) == []


def test_after_kill_9_a_sweep_removes_it(tmp_path: Path) -> None:
    before = pools()
    with start_owner(backing("zfs", folder(tmp_path), size=str(64 * MIB))):
        pass
    assert len(pools()) == len(before) + 1
    assert [swept.kept for swept in sweep([tmp_path])] == ["", ""]
    assert pools() == before and list(tmp_path.iterdir()) == []
