"""How long ``diskproof audit`` takes beside 20 running QEMUs (docs/audit.md).

    PYTHONPATH=src python benchmarks/audit.py [MACHINES]

The machines have a disk each and do not run (``-S``). Side by side, three times: the whole verb, a
start of diskproof that does nothing, and a plain walk over /proc in a Python of its own. Exit 1
when an audit takes 2 s or more, or does not judge every machine.
"""

import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from diskproof.process.start import Process, run, start_process

REPEATS = 3
MOST_SECONDS = 2.0
CACHES = ("none", "writeback", "directsync", "writethrough", "unsafe")
WALK = """
import psutil
for each in psutil.process_iter():
    try:
        each.cmdline(), each.open_files()
    except psutil.Error:
        pass
"""


def start_machine(stack: ExitStack, folder: Path, number: int) -> Process:
    image, pid_file = folder / f"{number}.raw", folder / f"{number}.pid"
    image.write_bytes(bytes(1 << 16))
    drive = f"file={image},format=raw,if=none,id=d,cache={CACHES[number % len(CACHES)]}"
    argv = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-m", "16"]
    argv += ["-accel", "tcg", "-name", f"vm{number}", "-pidfile", str(pid_file), "-drive", drive]
    argv += ["-device", "virtio-blk-pci,drive=d,id=vda"]
    argv += ["-qmp", f"unix:{folder}/{number}.qmp,server=on,wait=off"]
    process = stack.enter_context(start_process(argv, name="qemu", log=folder / "log"))
    while not pid_file.exists():
        if process.wait(0.02) is not None:
            raise SystemExit(process.read_log().decode())
    return process


def timed(argv: list[str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = run(argv, timeout=60, check=False)
    return time.perf_counter() - began, done.text


def main() -> int:
    machines = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    verb = [sys.executable, "-m", "diskproof"]
    commands = {
        "audit": [*verb, "audit", "--json"],
        "start": [*verb, "--version"],
        "walk": [sys.executable, "-c", WALK],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pids = {start_machine(stack, Path(folder), number).pid for number in range(machines)}
        for _ in range(REPEATS):
            for name, argv in commands.items():
                spent, text = timed(argv)
                seconds[name].append(spent)
                if name == "audit":
                    found = json.loads(text)["machines"]
                    judged = {each["pid"] for each in found if each["disks"]}
                    if not pids <= judged:
                        print(f"{len(pids - judged)} machines are not judged")
                        return 1
    for name, values in seconds.items():
        print(f"{name:6} {', '.join(f'{value:.2f}' for value in values)} s")
    audit, walk = (statistics.median(seconds[name]) for name in ("audit", "walk"))
    print(
        f"{machines} machines: audit takes {audit:.2f} s, {audit / walk:.1f} times a walk of /proc"
    )
    return 0 if max(seconds["audit"]) < MOST_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
