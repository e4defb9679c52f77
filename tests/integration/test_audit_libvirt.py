"""``diskproof audit`` of machines that a real libvirt runs: one machine, layer by layer.

Requires libvirtd, virsh and qemu-system-x86_64; a session libvirtd of the test's own.
"""

import json
import sys

import pytest

from diskproof.process.start import run
from support.libvirt_sessions import MISSING, domain, start_libvirt

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}")


def disk(image: str, cache: str) -> str:
    return (
        f"<disk type='file' device='disk'><driver name='qemu' type='raw' cache='{cache}'/>"
        f"<source file='{image}'/><target dev='vda' bus='virtio'/></disk>"
    )


def test_a_change_that_waits_is_told_apart_from_what_runs() -> None:
    with start_libvirt() as libvirt:
        image = libvirt.image("web.raw")
        libvirt.virsh("define", libvirt.write("a.xml", domain("waits", disk(image, "none"))))
        libvirt.virsh("start", "waits")
        env = libvirt.environment
        argv = [sys.executable, "-m", "diskproof", "audit", "waits", "--json"]
        sound = run(argv, timeout=60, check=False, env=env)
        uuid = libvirt.virsh("domuuid", "waits").strip()
        changed = domain("waits", f"<!-- {uuid} -->", disk(image, "unsafe"))
        changed = changed.replace("<name>waits</name>", f"<name>waits</name><uuid>{uuid}</uuid>")
        libvirt.virsh("define", libvirt.write("b.xml", changed))
        waiting = run(argv, timeout=60, check=False, env=env)
        assert "rd_req" in libvirt.virsh("domblkstat", "waits", "vda"), "libvirt has its monitor"
        pid = libvirt.pid("waits")
    (machine,) = json.loads(sound.text)["machines"]
    assert (machine["pid"], machine["id"], machine["manager"]) == (pid, uuid, "libvirt")
    (found,) = machine["disks"]
    assert sound.returncode == 0 and found["verdict"] == "keeps"
    assert found["layers"]["running"]["levels"]["cache"] == "none"
    (machine,) = json.loads(waiting.text)["machines"]
    (found,) = machine["disks"]
    assert waiting.returncode == 1 and found["verdict"] == "loses"
    assert found["layers"]["running"]["levels"]["cache"] == "none"
    told = {(remark["rule"], remark["layer"]) for remark in found["remarks"]}
    assert {("no-flush", "pending"), ("pending-change", "pending")} <= told
    assert ("no-flush", "running") not in told
    change = next(r["change"] for r in found["remarks"] if r["rule"] == "no-flush")
    assert "cache='unsafe'" not in change["text"] and image in change["text"]
