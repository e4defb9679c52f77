"""A user's own fio job file, run on the disk under test."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.fio_output import FioJob, combine_clones, job_histograms, job_metrics
from diskproof.records import Check, Metric, Series, WorkloadSpec
from diskproof.study.job_file import JobSection, parse_job_file
from diskproof.units import parse_bytes
from diskproof.workloads import WorkloadResult, fio_run

# The queue of a job that waits between its operations runs empty.
_WAITING = ("rate", "rate_iops", "thinktime", "latency_target", "fsync", "fdatasync", "sync")
_DAY = 86_400.0


class FioJobWorkload:
    """The kind ``fio-job``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """The deadline of the run bounds it: the file itself says how long it takes.

        Raises RunFailure; see ``run_fio``.
        """
        sections = read_sections(spec, drive)
        logs = {f"job{number}": section.name for number, section in enumerate(sections)}
        window = fio_run.log_window(float(spec.option("runtime")))
        run = fio_run.run_fio(
            drive, render_jobs(spec, sections, drive), _DAY, dict.fromkeys(logs, window)
        )
        jobs = combine_clones(run.result.jobs)
        if [job.name for job in jobs] != [section.name for section in sections]:
            raise fio_run.broken_answer(run, "its jobs are not those of the job file")
        try:
            metrics = combined_metrics(spec, jobs)
        except ValueError as error:
            raise fio_run.broken_answer(run, str(error)) from None
        whole = combine_whole(spec, jobs)
        return WorkloadResult(
            metrics,
            check_jobs(sections, jobs, drive, run),
            _named_series(run, logs),
            job_histograms(whole),
            run.artefacts,
            whole.runtime,
        )


WORKLOAD = FioJobWorkload()


def read_sections(spec: WorkloadSpec, drive: Drive) -> tuple[JobSection, ...]:
    """The jobs of the spec's file. Raises RunFailure ``workload`` when they cannot be run."""
    try:
        sections = parse_job_file(spec.option("job"))
        for section in sections:
            if (size := _find_bytes(section.option("size"))) and size > drive.facts.size:
                where = f"line {section.line}: job {section.name}"
                raise ValueError(f"{where} is larger than the disk ({drive.facts.size} bytes)")
    except ValueError as error:
        raise RunFailure("workload", "the fio job file cannot be run", str(error)) from None
    return sections


def _find_bytes(text: str) -> int | None:
    """A size in bytes where it is one and not a share (``50%``)."""
    try:
        return parse_bytes(text)
    except ValueError:
        return None


def render_jobs(spec: WorkloadSpec, sections: Sequence[JobSection], drive: Drive) -> str:
    """The job file as it is run: where the disk is, and what the user's file leaves open."""
    runtime, ramp = float(spec.option("runtime")), float(spec.option("ramp"))
    target = dict(drive.facts.fio)
    defaults = {
        **fio_run.FIXED_OPTIONS,
        "size": str(drive.facts.size),
        **({"ramp_time": fio_run.render_milliseconds(ramp)} if ramp else {}),
    }
    parts = []
    for number, section in enumerate(sections):
        own = dict(section.options)
        own.pop("group_reporting", None)  # clones are taken together here, from all they said
        own.pop("thread", None)  # always threads: fio's walls let it start no process
        if not {"runtime", "timeout", "io_size", "io_limit", "number_ios", "loops"} & own.keys():
            own |= {"time_based": "1", "runtime": fio_run.render_milliseconds(runtime)}
        if target["ioengine"] == "nbd":
            own = {**own, **_over_nbd(section)}
            own.pop("fdatasync", None)
        logs = fio_run.log_options(runtime, f"job{number}")
        parts.append(fio_run.render_options(section.name, {**target, **defaults, **own, **logs}))
    return "\n".join(parts)


def _over_nbd(section: JobSection) -> dict[str, str]:
    """What becomes of options over NBD: one engine knows it, and it has one kind of flush."""
    own = {"ioengine": "nbd"}
    if section.option("fdatasync", "0") != "0":
        own["fsync"] = section.option("fdatasync")
    return own


def combine_whole(spec: WorkloadSpec, jobs: Sequence[FioJob]) -> FioJob:
    """All jobs as one: they ran at the same time, so their rates add up."""
    return combine_clones([replace(job, name=spec.name) for job in jobs])[0]


def combined_metrics(spec: WorkloadSpec, jobs: Sequence[FioJob]) -> tuple[Metric, ...]:
    """Metrics of all jobs together, and ``JOB.metric`` of each when there are several.

    Raises ValueError for a job that did nothing.
    """
    primary = spec.option("primary", "iops")
    metrics = [*job_metrics(combine_whole(spec, jobs), primary)]
    for job in jobs if len(jobs) > 1 else ():
        for metric in job_metrics(job, primary):
            metrics.append(replace(metric, name=f"{job.name}.{metric.name}", primary=False))
    return tuple(metrics)


def check_jobs(
    sections: Sequence[JobSection], jobs: Sequence[FioJob], drive: Drive, run: fio_run.FioRun
) -> tuple[Check, ...]:
    """Depth where it tells something, and what the frontend made of the file."""
    checks = [fio_run.check_messages(run)]
    engine = drive.facts.fio["ioengine"]
    for section, job in zip(sections, jobs, strict=True):
        if engine == "nbd":
            checks += check_nbd(section)
        depth = _find_steady_depth(section)
        if depth > 1:
            checks.append(fio_run.check_depth(job, depth))
    return tuple(checks)


def check_nbd(section: JobSection) -> Iterator[Check]:
    """What a file asks for, and what of it reaches a disk behind a socket."""
    used = _over_nbd(section)
    for name, effective in (("ioengine", "nbd"), ("fdatasync", f"fsync={used.get('fsync')}")):
        if asked := section.option(name):
            yield Check(f"{section.name}: {name}", asked, effective, "NBD", True)
    for name in ("sync", "sync_file_range"):
        if (asked := section.option(name, "0")) not in ("0", "none"):
            yield Check(f"{section.name}: {name}", asked, "NBD has no such thing", "NBD", False)


def _find_steady_depth(section: JobSection) -> int:
    """The queue depth of a job that keeps its queue full, else 0."""
    waits = any(section.option(name, "0") not in ("0", "none") for name in _WAITING)
    batched = any(name.startswith("iodepth_") for name in section.options)
    depth = section.option("iodepth", "1")
    return 0 if waits or batched or not depth.isdigit() else int(depth)


def _named_series(run: fio_run.FioRun, logs: dict[str, str]) -> tuple[Series, ...]:
    if len(logs) == 1:
        return tuple(series for found in run.series.values() for series in found)
    return tuple(
        replace(series, name=f"{logs[log]}.{series.name}")
        for log, found in run.series.items()
        for series in found
    )
