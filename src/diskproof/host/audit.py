"""How undisturbed a host was around a run: what else it did, and how it is tuned.

Load averages and pressure averages still hold the run before, so neighbours are found by what the
processors did during the run beyond what our own processes used.
"""

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from diskproof.records import Artefact

FOREIGN_CORES = 0.5  # more than the kernel's own threads need for our I/O
STEAL_PERCENT = 2.0
HOT_CELSIUS = 90.0
_CPUFREQ = Path("/sys/devices/system/cpu")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class HostState:
    """A host at one moment. None is what it does not tell; CPU times are seconds since boot."""

    governors: tuple[str, ...]
    turbo: bool | None
    load_average: float
    pressure_io: float | None
    pressure_cpu: float | None
    celsius: float | None
    busy_seconds: float
    steal_seconds: float
    total_seconds: float
    own_seconds: float
    monotonic: float


@dataclass
class Audit:
    """The states around a run; ``warnings`` are for people."""

    before: HostState
    after: HostState | None = None
    warnings: tuple[str, ...] = field(default=())

    def as_artefact(self) -> Artefact:
        return Artefact("audit.json", "application/json", json.dumps(asdict(self)).encode())


@contextmanager
def start_audit() -> Iterator[Audit]:
    """Look at the host before and after a block; warnings are there when it has ended."""
    audit = Audit(read_state())
    try:
        yield audit
    finally:
        audit.after = read_state()
        audit.warnings = find_warnings(audit.before, audit.after)


def read_state() -> HostState:
    """The host now; takes about a millisecond."""
    busy, steal, total = _read_cpu_times()
    return HostState(
        governors=_read_governors(),
        turbo=_read_turbo(),
        load_average=os.getloadavg()[0],
        pressure_io=_read_pressure("io"),
        pressure_cpu=_read_pressure("cpu"),
        celsius=_read_celsius(),
        busy_seconds=busy,
        steal_seconds=steal,
        total_seconds=total,
        own_seconds=_own_cpu_seconds(),
        monotonic=time.monotonic(),
    )


def find_warnings(before: HostState, after: HostState) -> tuple[str, ...]:
    """What may have disturbed a run between two states. Pure."""
    found = []
    span = after.monotonic - before.monotonic
    used = after.busy_seconds - before.busy_seconds
    foreign = (used - (after.own_seconds - before.own_seconds)) / span if span > 0 else 0.0
    if foreign > FOREIGN_CORES:
        found.append(f"other programs used {foreign:.1f} processors during the run")
    total = after.total_seconds - before.total_seconds
    steal = 100 * (after.steal_seconds - before.steal_seconds) / total if total > 0 else 0.0
    if steal > STEAL_PERCENT:
        found.append(f"the hypervisor below took {steal:.0f} % of the processors' time")
    if slow := sorted(set(after.governors) - {"performance"}):
        found.append(f"the processors' speed is governed by {', '.join(slow)}")
    if after.celsius is not None and after.celsius >= HOT_CELSIUS:
        found.append(f"the processors are at {after.celsius:.0f} degrees Celsius")
    return tuple(found)


def _read_cpu_times() -> tuple[float, float, float]:
    """Busy, stolen and all seconds of the first line of proc_stat(5); guest time is in user."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, iowait, irq, softirq, steal = (int(f) / _TICKS for f in fields)
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + idle + iowait + steal


def _own_cpu_seconds() -> float:
    """CPU time of this process and of all its children that have ended."""
    own, ended = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def _read_governors() -> tuple[str, ...]:
    files = _CPUFREQ.glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({text for file in files if (text := _read_text(file))}))


def _read_turbo() -> bool | None:
    """Whether the processors may run above their base clock."""
    if (text := _read_text(_CPUFREQ / "intel_pstate/no_turbo")) in ("0", "1"):
        return text == "0"
    if (text := _read_text(_CPUFREQ / "cpufreq/boost")) in ("0", "1"):
        return text == "1"
    return None


def _read_pressure(kind: str) -> float | None:
    """Percent of the last ten seconds in which some task waited (PSI)."""
    with suppress(ValueError, IndexError):
        return float(_read_text(Path("/proc/pressure") / kind).split("avg10=")[1].split()[0])
    return None


def _read_celsius() -> float | None:
    """The hottest thermal zone; sysfs counts in thousandths."""
    degrees = []
    for file in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        with suppress(ValueError):
            degrees.append(int(_read_text(file)) / 1000)
    return max(degrees, default=None)


def _read_text(file: Path) -> str:
    """Content without its newline, empty for what cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
