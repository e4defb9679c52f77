"""Which block node decides on flushes: what is read from a line is what QEMU does.

Requires qemu-io and the native programs (``make setup``).
"""

import itertools
import json
from pathlib import Path

import pytest

from diskproof.advice.qemu_read import READING
from diskproof.process.native import require_native
from diskproof.process.start import run
from support.qemus import make_image


def count_syncs(options: str) -> int:
    """How often qemu-io asks the kernel for a sync, for one write that is flushed."""
    trace = [str(require_native("diskproof-sync-trace")), "--by", "preload", "--json", "--"]
    command = ["qemu-io", "-c", "write 0 4k", "-c", "flush", "--image-opts", options]
    told = run([*trace, *command], timeout=60)
    (line,) = [line for line in told.error_text.splitlines() if line.startswith("{")]
    return int(json.loads(line)["calls"])


NODES = list(itertools.product(("raw", "qcow2"), ("off", "on"), ("off", "on")))


@pytest.mark.parametrize(("form", "above", "below"), NODES)
def test_a_line_is_read_as_qemu_takes_it(tmp_path: Path, form: str, above: str, below: str) -> None:
    image = make_image(tmp_path / "disk", form)
    options = (
        f"driver={form},cache.no-flush={above},file.driver=file,file.filename={image},"
        f"file.cache.no-flush={below}"
    )
    syncs = count_syncs(options)
    line = f"qemu-system-x86_64 -blockdev {options},node-name=d -device virtio-blk-pci,drive=d"
    (disk,) = READING.read_machines(line, "line")[0].disks
    assert disk.configured is not None
    assert (disk.configured.levels["cache"] == "unsafe") == (syncs == 0)
    bad = [remark.effect for remark in disk.remarks if remark.rule == "uneven-no-flush"]
    assert bad == ([] if above == below else ["loses" if syncs == 0 else "note"])
