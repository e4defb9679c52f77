"""Boot to the agent's hello against the same kernel with an initramfs that only powers off.

Both machines are the same but for the initramfs; they are started in turns. Prints medians in
seconds and their ratio; exits with 1 when it is above the bar.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import start_agent
from diskproof.guest.ours.build import GuestFiles, render_initrd, require_guest
from diskproof.process.native import require_native
from diskproof.qemu.machine import GuestMachine

BAR = 1.5
DEADLINE = 120.0


def boot_to_agent(files: GuestFiles, machine: GuestMachine, run_dir: Path) -> float:
    """Seconds from starting QEMU to the agent's first words."""
    with start_agent(files, machine, run_dir=run_dir, folder=run_dir, deadline=DEADLINE) as booted:
        booted.process.kill()
        return booted.seconds


def boot_to_power_off(files: GuestFiles, machine: GuestMachine, run_dir: Path) -> float:
    """Seconds from starting QEMU to its end; there is no agent, so the channel just closes."""
    began = time.monotonic()
    try:
        with start_agent(files, machine, run_dir=run_dir, folder=run_dir, deadline=DEADLINE):
            raise SystemExit("the guest that should only power off said hello")
    except RunFailure as failure:
        if failure.what != "the guest switched itself off":
            raise
        return time.monotonic() - began


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--accel", choices=("tcg", "kvm"), default="tcg")
    chosen = options.parse_args()
    files = require_guest()
    machine = GuestMachine(chosen.accel)
    agent: list[float] = []
    power_off: list[float] = []
    with tempfile.TemporaryDirectory(prefix="diskproof-boot-") as folder:
        run_dir = Path(folder)
        run_dir.chmod(0o755)
        initrd = run_dir / "initrd"
        initrd.write_bytes(render_initrd(require_native("diskproof-poweroff").read_bytes(), None))
        bare = dataclasses.replace(files, initrd=initrd)
        for number in range(chosen.rounds):
            turns = [(agent, boot_to_agent, files), (power_off, boot_to_power_off, bare)]
            for times, boot, chosen_files in turns if number % 2 else reversed(turns):
                times.append(boot(chosen_files, machine, run_dir))
    ratio = statistics.median(agent) / statistics.median(power_off)
    for name, times in (("boot to agent", agent), ("boot to power-off", power_off)):
        middle, low, high = statistics.median(times), min(times), max(times)
        print(f"{name:18} median {middle:.3f} s  ({low:.3f} to {high:.3f}, n={len(times)})")
    print(f"{'ratio':18} {ratio:.2f}  (bar: at most {BAR})")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
