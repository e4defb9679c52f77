"""Power cuts of a guest with ZFS: what its property ``sync`` keeps.

Requires the guest with ZFS (``diskproof guest build --with zfs``), root and /dev/fuse.
"""

from pathlib import Path

import pytest

from diskproof.study.crash import ZFS_BYTES, CrashRules
from support.recording import needs_fuse
from support.written import make_cell, read_acks, run_check, start_written

pytestmark = [needs_fuse, pytest.mark.long, pytest.mark.usefixtures("zfs_files")]
RULES = CrashRules(records=16, seconds=60.0)


@pytest.mark.parametrize("kind", ZFS_BYTES)
@pytest.mark.parametrize(("sync", "code"), [("standard", 0), ("always", 0), ("disabled", 1)])
def test_what_a_killed_guest_had_synced(tmp_path: Path, kind: str, sync: str, code: int) -> None:
    """QEMU's end is the guest's power cut; all that it had written is on the disk. With
    sync=disabled that is not what fsync had promised."""
    on = {"filesystem": kind, "mount": f"sync={sync}"}
    size = ZFS_BYTES[kind]
    cell = make_cell("ledger-fs", "guest", RULES, size, cache="none", bus="virtio-blk", **on)
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks[-1].endswith(f" {RULES.records}")
        found = run_check(cell, recorded.files, acks, recorded.room)
        assert found.returncode == code, found.error_text
        if code == 0:
            more = f"{acks[-1].rpartition(' ')[0]} {RULES.records + 3}"
            lost = run_check(cell, recorded.files, [*acks, more], recorded.room)
            assert (lost.returncode, lost.text) == (1, "3\n"), lost.error_text
        else:
            assert int(found.text) > 0
            corrupt = run_check(cell, recorded.base, acks, recorded.room)
            assert corrupt.returncode == 2 and "cannot be mounted" in corrupt.error_text
