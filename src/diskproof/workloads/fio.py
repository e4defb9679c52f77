"""The fio presets: one job, made of the workload's options and of where the disk is."""

from collections.abc import Iterator, Sequence

from diskproof.drive import Drive
from diskproof.fio_output import FioJob, job_histograms, job_metrics
from diskproof.records import Check, Metric, Series, WorkloadSpec
from diskproof.stats.warm_up import find_warm_up
from diskproof.workloads import WorkloadResult, fio_run

START_SECONDS = 60.0  # for fio to start and end, under emulation on a busy host
LOG = "load"


class FioWorkload:
    """The kind ``fio``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure; see ``run_fio``."""
        runtime, ramp = float(spec.option("runtime")), float(spec.option("ramp"))
        job_file, logs = render_job(spec, drive), {LOG: fio_run.log_window(runtime)}
        run = fio_run.run_fio(drive, job_file, runtime + ramp + START_SECONDS, logs)
        if len(run.result.jobs) != 1:
            count = len(run.result.jobs)
            raise fio_run.broken_answer(run, f"fio's answer has {count} jobs, one was started")
        job = run.result.jobs[0]
        try:
            metrics = job_metrics(job, spec.option("primary"))
        except ValueError as error:
            raise fio_run.broken_answer(run, str(error)) from None
        return WorkloadResult(
            (*metrics, *warm_up_metrics(spec, run.series[LOG])),
            check_load(spec, job, run),
            run.series[LOG],
            job_histograms(job),
            run.artefacts,
            job.runtime,
        )


WORKLOAD = FioWorkload()


def render_job(spec: WorkloadSpec, drive: Drive) -> str:
    """The job file of a preset on a drive."""
    runtime, ramp = float(spec.option("runtime")), float(spec.option("ramp"))
    options = {name: spec.option(name) for name in ("rw", "bs", "iodepth")}
    options["size"] = str(min(int(spec.option("size")), drive.facts.size))
    options["time_based"] = "1"
    options["runtime"] = fio_run.render_milliseconds(runtime)
    if ramp:
        options["ramp_time"] = fio_run.render_milliseconds(ramp)
    if spec.option("fsync", "0") != "0":
        options["fsync"] = spec.option("fsync")
    if spec.option("rw") in ("rw", "randrw"):
        options["rwmixread"] = spec.option("rwmixread")
    if spec.option("distribution", "random") != "random":
        options["random_distribution"] = spec.option("distribution")
    options |= fio_run.log_options(runtime, LOG)
    return fio_run.render_options(
        spec.name, {**drive.facts.fio, **fio_run.FIXED_OPTIONS, **options}
    )


def warm_up_metrics(spec: WorkloadSpec, series: Sequence[Series]) -> Iterator[Metric]:
    """What a skewed load that is measured from its first operation on says of caches; nothing of
    other loads. A run that was not steady at its end has no ``warm_up_seconds``."""
    skewed = spec.option("distribution", "random").startswith("zipf")
    course = next((each for each in series if each.name == "iops"), None)
    if not skewed or float(spec.option("ramp")) or course is None:
        return
    found = find_warm_up(course.times, course.values)
    if found is None:
        return
    yield Metric("cold_iops", "1/s", found.first, higher_is_better=True)
    yield Metric("warm_iops", "1/s", found.last, higher_is_better=True)
    if found.seconds is not None:
        yield Metric("warm_up_seconds", "s", found.seconds, higher_is_better=False)


def check_load(spec: WorkloadSpec, job: FioJob, run: fio_run.FioRun) -> tuple[Check, ...]:
    """Whether fio's load was the one asked for.

    A flush waits for what is in the queue, so that depth tells nothing of a load with flushes.
    """
    depth = int(spec.option("iodepth"))
    checks = [
        fio_run.check_runtime(job, float(spec.option("runtime"))),
        fio_run.check_messages(run),
    ]
    if depth > 1 and spec.option("fsync", "0") == "0":
        checks.append(fio_run.check_depth(job, depth))
    return tuple(checks)
