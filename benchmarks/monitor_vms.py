"""What watching 20 virtual machines costs: CPU and memory of the monitor, with and without QMP.

Twenty QEMUs are started, each with four vCPUs, an iothread, named threads and a QMP socket; their
guests do not run, so that what is measured is not disturbed by them. Per round each set of options
is started anew, its start included. Prints medians over rounds, and exits with 1 when `--vm` needs
more than 0.3 % of a core at a sample a second, or 10 MiB.

kvmtop, the peer, needs libvirt. Needs qemu-system-x86; as root the hosts' syncs are counted too.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import start_process

BAR_PERCENT = 0.3
BAR_MIB = 10.0
OPTIONS = {"--vm": ("--vm",), "--vm --qmp": ("--vm", "--qmp"), "-c alone": ("-c",)}


@contextmanager
def start_machines(count: int, folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for number in range(count):
            argv = ["qemu-system-x86_64", "-machine", "pc,accel=tcg", "-m", "32", "-S"]
            argv += ["-nodefaults", "-display", "none", "-smp", "4", "-object", "iothread,id=io"]
            argv += ["-name", f"guest=vm{number},debug-threads=on"]
            argv += ["-qmp", f"unix:{folder}/{number}.sock,server=on,wait=off"]
            log = folder / f"{number}.log"
            stack.enter_context(start_process(argv, name="qemu", log=log))
        while len([*folder.glob("*.sock")]) < count:
            time.sleep(0.1)
        yield


def measure(options: tuple[str, ...], samples: int) -> tuple[float, float]:
    """Percent of a core over the whole life, and the most MiB that were resident."""
    argv = [str(require_native("diskproof-monitor")), *options]
    argv += ["--json", "/dev/null", "-q", "1", str(samples)]
    began = time.monotonic()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawn(
        argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nowhere, 1)]
    )
    os.close(nowhere)
    resident = 0.0
    while not (ended := os.wait4(pid, os.WNOHANG))[0]:
        resident = max(resident, read_peak(pid))
        time.sleep(0.5)
    _, status, used = ended
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit("the monitor failed")
    seconds = time.monotonic() - began
    return 100 * (used.ru_utime + used.ru_stime) / seconds, resident


def read_peak(pid: int) -> float:
    """MiB; ru_maxrss would be what we had ourselves before the exec."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in OPTIONS}
    with tempfile.TemporaryDirectory() as folder, start_machines(asked.machines, Path(folder)):
        for _ in range(asked.rounds):
            for name, options in OPTIONS.items():
                costs[name].append(measure(options, asked.samples))
    print(f"{asked.machines} machines, a sample a second, {asked.samples} samples, medians")
    for name, each in costs.items():
        percent, mib = (statistics.median(values) for values in zip(*each, strict=True))
        print(f"{name:12} {percent:5.2f} % of a core {mib:5.1f} MiB")
    percent, mib = (statistics.median(values) for values in zip(*costs["--vm"], strict=True))
    return 1 if percent > BAR_PERCENT or mib > BAR_MIB else 0


if __name__ == "__main__":
    sys.exit(main())
