"""A bound on the page cache by control groups of version 2, in a guest that has no others.

Requires qemu-system-x86_64 and what builds the guest with Python (``guest build --with storage``).
"""

import json
from pathlib import Path
from typing import Any

from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import build_guest
from diskproof.host.accel import probe_accel
from diskproof.qemu.machine import GuestMachine
from support.in_guest import WORK, bring_sources

LIMIT = 32 << 20
# As systemd hands groups down: the root to slices, a slice to its scopes.
GROUPS = """mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/some.slice/some.scope
echo +memory > /sys/fs/cgroup/some.slice/cgroup.subtree_control
"""
DISK = f"""truncate -s 160M {WORK}/disk
mkfs.ext4 -q {WORK}/disk
mkdir {WORK}/mounted
mount -o loop {WORK}/disk {WORK}/mounted
dd if=/dev/urandom of={WORK}/mounted/file bs=1M count=128 status=none
sync
echo 3 > /proc/sys/vm/drop_caches
"""
READ = f"""
import json, sys
from pathlib import Path
from diskproof.host.memory_limit import PREFIX, check_resident, start_memory_limit
from diskproof.process.start import run

Path("/sys/fs/cgroup", sys.argv[1], "cgroup.procs").write_text("0")
Path("/proc/sys/vm/drop_caches").write_text("3")
file = Path("{WORK}/mounted/file")
told = {{}}
with start_memory_limit({LIMIT}):
    told["group"] = run(["cat", "/proc/self/cgroup"], timeout=60).text.strip()
    run(["dd", f"if={{file}}", "of=/dev/null", "bs=1M"], timeout=60)
    bounded = check_resident([file], {LIMIT})
told["left"] = [str(path) for path in Path("/sys/fs/cgroup").rglob(PREFIX + "*")]
run(["dd", f"if={{file}}", "of=/dev/null", "bs=1M"], timeout=60)
free = check_resident([file], {LIMIT})
told |= {{"bounded": [bounded.ok, bounded.effective], "free": [free.ok, free.effective]}}
print(json.dumps(told))
"""


def test_what_is_read_in_a_group_is_bounded_and_what_is_read_outside_is_not(run_dir: Path) -> None:
    """From the root, and from a scope."""
    machine = GuestMachine(probe_accel().accel, memory_bytes=1 << 30)
    with start_guest(build_guest(extra="storage"), machine, run_dir=run_dir) as guest:
        guest.load_modules(["ext4", "loop"])
        bring_sources(guest.channel)
        for script in (GROUPS, DISK):
            done = guest.channel.exec(["sh", "-ec", script], timeout=240)
            assert done.exit.code == 0, done.stderr
        for own, parent in (("", "/"), ("some.slice/some.scope", "/some.slice/")):
            done = guest.channel.exec(
                ["python3", "-c", READ, own], timeout=240, env={"PYTHONPATH": f"{WORK}/src"}
            )
            assert done.exit.code == 0, done.stderr.decode()
            check_bounds(json.loads(done.stdout), parent)
        guest.power_off()


def check_bounds(told: dict[str, Any], parent: str) -> None:
    assert told["group"].startswith(f"0::{parent}diskproof-limit-") and told["left"] == []
    (kept, inside), (left_free, outside) = told["bounded"], told["free"]
    assert kept and 0 < int(inside.split()[0]) <= LIMIT
    assert not left_free and int(outside.split()[0]) > LIMIT
