"""Whether fsync(2) on f2fs waits for what it writes: it takes no less time than the disk does.

In our guest with storage, by whose kernel there is f2fs, on a disk that makes each write late and
each flush at once (dm-delay): new empty files are flushed one after the other, and after each few
their directory, which is a checkpoint. Prints milliseconds; exits with 1 when an fsync took less
than half of what a write takes. docs/crash-model.md has what was seen; by that are the rules
`f2fs-unwaited`.
"""

import argparse
import json
import sys

from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import build_guest
from diskproof.host.accel import probe_accel
from diskproof.process.scratch import start_scratch_dir
from diskproof.qemu.machine import GuestMachine

IN_GUEST = """
import json, os, subprocess, sys, time

delay, options, turns, files = json.loads(sys.argv[1])
run = lambda *argv: subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
os.makedirs("/run/f2fs", exist_ok=True)
with open("/run/f2fs.raw", "wb") as disk:
    disk.truncate(128 << 20)
run("mkfs.f2fs", "-q", "-f", "/run/f2fs.raw")
loop = run("losetup", "-f", "--show", "/run/f2fs.raw")
sectors = run("blockdev", "--getsz", loop)
# As dm-delay has them: reads, writes, flushes.
places = [f"{loop} 0 {late}" for late in (0, delay, 0)]
run("dmsetup", "create", "slow", "--table", f"0 {sectors} delay {' '.join(places)}")
run("mount", "-t", "f2fs", "-o", options, "/dev/dm-0", "/run/f2fs")

def flush(path, flags):
    handle = os.open(path, flags)
    began = time.monotonic()
    os.fsync(handle)
    took = 1000 * (time.monotonic() - began)
    os.close(handle)
    return took

def take_turn(turn):
    names = [f"/run/f2fs/{turn}-{number}" for number in range(files)]
    of_files = [flush(name, os.O_CREAT | os.O_WRONLY) for name in names]
    return [*of_files, flush("/run/f2fs", os.O_RDONLY)]

print(json.dumps([take_turn(turn) for turn in range(turns)]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=int, default=200, help="of a write, in ms")
    parser.add_argument("--options", default="defaults", help="of the mount")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--files", type=int, default=4, help="between two checkpoints")
    given = parser.parse_args()
    told = json.dumps([given.delay, given.options, given.turns, given.files])
    machine = GuestMachine(probe_accel().accel)
    with (
        start_scratch_dir() as room,
        start_guest(build_guest(extra="storage"), machine, run_dir=room) as guest,
    ):
        guest.load_modules(["loop", "f2fs", "dm_mod", "dm_delay"])
        argv = ["python3", "-", told]
        done = guest.channel.exec(argv, timeout=300.0, cwd="/run", stdin=IN_GUEST.encode())
        if done.exit.code != 0:
            sys.exit(done.stderr.decode(errors="replace"))
        guest.power_off()
    turns: list[list[float]] = json.loads(done.stdout)
    print(f"Linux {guest.files.kernel_release}, {given.options}, a write takes {given.delay} ms")
    for *files, directory in turns:
        print("  fsync, ms:", *(f"{each:.1f}" for each in files), f"directory {directory:.1f}")
    return 1 if min(map(min, turns)) < given.delay / 2 else 0


if __name__ == "__main__":
    sys.exit(main())
