"""A tree copied in a guest, on a file system of its own on the disk under test.

Requires the built guest, qemu-system-x86_64, qemu-img, the monitor.
"""

from pathlib import Path

import pytest

from diskproof.records import BackingSpec
from diskproof.study.load import parse_study
from support.running import execute

GUEST = {"frontend": "guest", "bus": "virtio-blk", "cache": "writeback", "format": "qcow2"}
STUDY = """
[workloads.tree-copy]
files = 100
bytes = "4MiB"
scale = "1"
filesystem = "xfs"
[protocol]
size = "384MiB"
"""


def test_a_tree_is_copied_in_a_guest(tmp_path: Path) -> None:
    record = execute(tmp_path / "images", parse_study(STUDY).workloads[0], **GUEST)
    assert record.failure is None
    told = {metric.name: metric.value for metric in record.metrics}
    assert told["file_rate"] == pytest.approx(100 / told["seconds"])
    assert told["bandwidth"] == pytest.approx(4 / told["seconds"])
    (state,) = [check for check in record.checks if check.name == "source: cold"]
    assert state.effective == "0 B cached, unmounted and mounted again"


def test_a_tree_is_copied_from_a_disk_on_another_backing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    source = BackingSpec("other", "directory", (("path", str(elsewhere)),), make=True)
    (spec,) = parse_study(
        STUDY.replace("files = 100", 'files = 100\nsource_on = "other"')
        + f'[backings.other]\nkind = "directory"\npath = "{elsewhere}"\n'
    ).workloads
    record = execute(tmp_path / "images", spec, others=[source], **GUEST)
    assert record.failure is None
    told = {check.name: check.effective for check in record.checks}
    assert told["source: cold"] == "0 B cached, unmounted and mounted again"
    assert told["source: cache.direct"] == "on"
    argv = next(item for item in record.artefacts if item.name == "qemu.argv.json")
    assert b"serial=diskproof-source" in argv.content
    assert not elsewhere.exists()
