"""What noting callers and their places costs the recorder: its own processor time, in turns.

Each turn starts a recorder of its own for each kind of recording, one after the other, and writes
512 bytes 20,000 times: by dd, and by a script of Python. Prints the medians, the least and the
most of all turns, and the median of the ratios of neighbours in a turn.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import run

KINDS: dict[str, list[str]] = {
    "without": [],
    "--callers": ["--callers"],
    "--callers --stacks": ["--callers", "--stacks"],
}
SCRIPT = """import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
def save(data):
    os.write(file, data)
for _ in range(int(sys.argv[2])):
    save(bytes(512))
"""


def writers(file: Path, count: int) -> dict[str, list[str]]:
    return {
        "dd": ["dd", "if=/dev/zero", f"of={file}", "bs=512", f"count={count}", "status=none"],
        "Python": ["/usr/bin/python3", "-c", SCRIPT, str(file), str(count)],
    }


def measure(program: Path, kind: list[str], writer: str, count: int) -> float:
    """Seconds of processor time that a recorder took for its whole life."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        backing, mount = folder / "backing", folder / "mount"
        backing.mkdir()
        mount.mkdir()
        argv = [str(program), "--foreground", *kind, "--log", str(folder / "log")]
        recorder = subprocess.Popen([*argv, str(backing), str(mount)], stdout=subprocess.PIPE)
        assert recorder.stdout is not None
        recorder.stdout.readline()
        try:
            run(writers(mount / "file", count)[writer], timeout=120)
        finally:
            run(["umount", str(mount)], timeout=60)
        _, status, usage = os.wait4(recorder.pid, 0)
        recorder.returncode = status
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, help="the recorder (default: the one installed)")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--writers", nargs="+", default=list(writers(Path(), 0)))
    options = parser.parse_args()
    program = options.program or require_native("diskproof-recordfs")
    for writer in options.writers:
        taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for turn in range(options.turns):
            for kind in list(KINDS)[:: 1 if turn % 2 == 0 else -1]:
                taken[kind].append(measure(program, KINDS[kind], writer, options.count))
        for kind, times in taken.items():
            pairs = zip(times, taken["--callers"], strict=True)
            ratio = statistics.median(mine / other for mine, other in pairs)
            median = statistics.median(times)
            spread = f"{min(times):.2f} to {max(times):.2f}"
            print(f"{writer:8} {kind:20} {median:6.3f} s  {spread}  {ratio:5.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
