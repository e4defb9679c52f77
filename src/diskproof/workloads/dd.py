"""dd's manners: one sequential pass over the disk through the page cache, the flush in the time."""

import re

from diskproof.drive import Drive, Execution
from diskproof.errors import RunFailure, tells_no_space
from diskproof.records import Artefact, Metric, WorkloadSpec
from diskproof.units import MIB, parse_bytes
from diskproof.workloads import WorkloadResult
from diskproof.workloads.iozone import SLOWEST, START_SECONDS, check_memory

_TOLD = re.compile(rb"^(\d{1,18}) bytes .*copied, ([0-9.e+-]{1,30}) s", re.MULTILINE)


class DdWorkload:
    """The kind ``dd``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure ``space`` when the disk was full, ``workload`` when dd failed."""
        size = min(int(spec.option("size")), drive.facts.size)
        argv = dd_args(spec, drive.facts.disk, size)
        done = drive.execute(argv, timeout=START_SECONDS + size / SLOWEST)
        seconds = parse_seconds_told(done, size)
        metrics = (
            Metric("bandwidth", "MiB/s", size / seconds / MIB, True, primary=True),
            Metric("seconds", "s", seconds, higher_is_better=False),
        )
        artefact = Artefact("dd.txt", "text/plain", done.stderr)
        checks = (check_memory(drive, size),)
        return WorkloadResult(metrics, checks, artefacts=(artefact,), measured_seconds=seconds)


WORKLOAD = DdWorkload()


def dd_args(spec: WorkloadSpec, device: str, size: int) -> list[str]:
    """dd over ``size`` bytes, or as much of it as whole blocks fill. Writing ends with fsync."""
    block = parse_bytes(spec.option("bs"))
    argv = ["env", "LC_ALL=C", "dd", f"bs={block}", f"count={size // block}"]
    direct = spec.option("direct") == "on"
    if spec.option("rw") == "write":
        flags = ["oflag=direct"] if direct else []
        return [*argv, "if=/dev/zero", f"of={device}", "conv=notrunc,fsync", *flags]
    return [*argv, f"if={device}", "of=/dev/null", *(["iflag=direct"] if direct else [])]


def parse_seconds_told(done: Execution, size: int) -> float:
    """dd's own time in seconds. Raises RunFailure when it failed or did less than asked for."""
    evidence = (("dd.txt", done.stderr[-4096:]),)
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace").strip()
        kind = "space" if tells_no_space(text) else "workload"
        raise RunFailure(kind, "dd failed", text[-300:], evidence=evidence)
    told = _TOLD.search(done.stderr)
    if told is None or float(told[2]) <= 0:
        raise RunFailure("workload", "dd did not tell how long it took", evidence=evidence)
    return float(told[2])
