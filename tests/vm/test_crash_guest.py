"""What cache modes keep of a guest's writes: the ledger in a real guest on a recorded folder.

Requires the built guest, qemu-system-x86_64, root, /dev/fuse and the native programs.
"""

from pathlib import Path

import pytest

from diskproof.advice.judge import judge_disk
from diskproof.records.verdicts import CrashRun
from diskproof.records.virtual_machines import DiskJudgement, Layer, Machine, MachineDisk
from diskproof.report.machines.proof import prove_disk
from support.crashing import OF_FORM, make_real_run
from support.recording import needs_fuse

pytestmark = needs_fuse
GUEST = {"frontend": "guest", "accel": "tcg", "memory": "256M", "vcpus": "1"}


@pytest.mark.parametrize(
    ("bus", "form", "cache", "durable", "expected"),
    [
        ("virtio-blk", "raw", "none", "flush", "keeps"),
        ("virtio-blk", "qcow2", "writeback", "flush", "keeps"),
        ("virtio-blk", "raw", "unsafe", "flush", "loses"),
        ("virtio-blk", "raw", "directsync", "write", "keeps"),
        ("ahci", "raw", "writethrough", "write", "keeps"),
        ("virtio-blk", "raw", "none", "write", "loses"),
    ],
)
def test_a_guest_keeps_what_its_stack_flushes(
    tmp_path: Path, bus: str, form: str, cache: str, durable: str, expected: str
) -> None:
    levels = {**GUEST, "bus": bus, "format": form, "cache": cache}
    found = make_real_run(tmp_path, durable=durable, rules=OF_FORM[form], **levels)
    assert found.failure is None, found.failure
    verdicts = {verdict.fault: verdict.verdict for verdict in found.verdicts}
    assert verdicts["power"] == expected
    assert verdicts["guest-kill"] == "keeps"
    assert verdicts["lying-device"] in ("loses", "corrupts")
    if form == "raw":
        assert verdicts["qemu-kill"] == "keeps"
    judged = audit_such_a_disk(found)
    if durable == "write" and expected == "loses":  # it never flushed: that is not the disk's fault
        assert (judged.effect, judged.certainty) == ("keeps", "by rule")
    else:
        assert (judged.effect, judged.certainty) == (expected, "proved"), judged


def audit_such_a_disk(found: CrashRun) -> DiskJudgement:
    """What audit says of a machine's disk with the levels of the cell, given its verdicts."""
    levels = found.cell.levels_dict()
    below = Layer({"queue sda": "write back"}, "test")
    disk = MachineDisk("vda", "/srv/a", "file", running=Layer(levels, "QMP"), below=below)
    machine = Machine("web", "qemu", "test", (disk,))
    return prove_disk(judge_disk(disk, machine), list(found.rows))
