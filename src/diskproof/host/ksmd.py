"""What merging costs: the CPU time of the kernel's thread ksmd."""

import os
from pathlib import Path

from diskproof.records import Series

_NAME = b"ksmd"
_KTHREADD = 2  # the parent of all kernel threads; a program may call itself ksmd


def read_ksmd_seconds(proc: Path = Path("/proc")) -> float | None:
    """CPU seconds of ksmd since the host was started (proc_pid_stat(5)); None where there is none
    to be seen: a kernel without KSM, a container."""
    for folder in proc.glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_bytes().partition(b"(")[2].rpartition(b")")
            fields = rest.split()
            if name == _NAME and int(fields[1]) == _KTHREADD:
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            continue  # a process that has just ended
    return None


def ksmd_series(before: float | None, after: float | None, seconds: float) -> tuple[Series, ...]:
    """Its mean over a load of so many seconds in percent of one CPU, as a series of one reading;
    none where it was not seen."""
    if before is None or after is None or seconds <= 0:
        return ()
    share = 100 * max(0.0, after - before) / seconds
    return (Series("host", "ksm.cpu", "percent", (seconds,), (share,)),)
