"""What of a disk stays in the host's page cache: after a guest has read it, after that guest was
reset, and after its QEMU has ended (which is what the next start finds)."""

import time

from diskproof.drive import Drive, SteeredMachine
from diskproof.errors import RunFailure
from diskproof.host.caches import count_pages
from diskproof.records import Check, Metric, WorkloadSpec
from diskproof.units import MIB
from diskproof.workloads import WorkloadResult
from diskproof.workloads.fio_run import FIXED_OPTIONS, FioRun, render_options, run_fio

RESET_SECONDS = 30.0
SLOWEST = 4 << 20  # bytes/s, under emulation on a busy host
START_SECONDS = 60.0
END_SECONDS = 30.0


class CacheLife:
    """The kind ``cache_life``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Two passes over the disk, a reset, an end; the pages are counted after each.

        Raises RunFailure ``workload`` without a guest, ``qemu`` when it does not follow.
        """
        machine = drive.facts.machine
        if machine is None:
            raise RunFailure("workload", "this workload needs a guest", "", 'frontend = "guest"')
        image = machine.image.path
        passes = [run_fio(drive, _job(drive), _seconds(drive), {}) for _ in range(2)]
        read = count_pages(image)
        reset(machine, float(spec.option("settle")))
        after_reset = count_pages(image)
        end(machine, drive)
        after_end = count_pages(image)
        cold, warm = (_bandwidth(run) for run in passes)
        metrics = (
            _share("cached_by_reading", read, drive.facts.size),
            _share("left_after_reset", after_reset, max(read, 1)),
            _share("left_after_restart", after_end, max(read, 1), primary=True),
            Metric("first_read", "MiB/s", cold, higher_is_better=True),
            Metric("second_read", "MiB/s", warm, higher_is_better=True),
        )
        told = f"{read}, {after_reset}, {after_end} bytes"
        check = Check("pages", "counted after reading, reset, end", told, "mincore", True)
        artefacts = tuple(artefact for run in passes for artefact in run.artefacts)
        return WorkloadResult(metrics, (check,), artefacts=artefacts[:3])


WORKLOAD = CacheLife()


def reset(machine: SteeredMachine, settle: float) -> None:
    """Press the guest's reset button and let it boot for ``settle`` seconds."""
    machine.monitor.execute("set-action", {"reboot": "reset"})  # ours end at a reset otherwise
    machine.monitor.execute("system_reset")
    if machine.monitor.wait_event(("RESET",), RESET_SECONDS) is None:
        raise RunFailure("qemu", f"the guest was not reset within {RESET_SECONDS:.0f} s")
    time.sleep(settle)


def end(machine: SteeredMachine, drive: Drive) -> None:
    """Have QEMU end in order, and wait until it has."""
    machine.monitor.execute("quit")
    deadline = time.monotonic() + END_SECONDS
    while any(_lives(pid) for pid in drive.facts.pids):
        if time.monotonic() > deadline:
            raise RunFailure("qemu", f"QEMU did not end within {END_SECONDS:.0f} s")
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    """Whether a child of ours still runs, or a thread of one that waits to be reaped."""
    import psutil

    try:
        process = psutil.Process(pid)
        return (process.status(), process.num_threads()) != (psutil.STATUS_ZOMBIE, 1)
    except psutil.NoSuchProcess:
        return False


def _job(drive: Drive) -> str:
    options = {"rw": "read", "bs": "1m", "iodepth": "4", "size": str(drive.facts.size)}
    return render_options("pass", {**drive.facts.fio, **FIXED_OPTIONS, **options})


def _bandwidth(run: FioRun) -> float:
    return sum(job.read.bandwidth for job in run.result.jobs) / MIB


def _share(name: str, count: int, whole: int, *, primary: bool = False) -> Metric:
    return Metric(name, "%", 100 * count / whole, higher_is_better=True, primary=primary)


def _seconds(drive: Drive) -> float:
    return START_SECONDS + drive.facts.size / SLOWEST
