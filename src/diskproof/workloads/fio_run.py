"""fio on a drive: started, its end understood, its answer read."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.drive import Drive, Execution
from diskproof.errors import NO_SPACE, HostError, RunFailure
from diskproof.fio_output import FioJob, FioResult, parse_fio_output
from diskproof.records import Artefact, Check, Series
from diskproof.workloads.fio_series import parse_iops_log

JOB_FILE = "fio.job"
ANSWER = "fio.json"
MESSAGES = "fio.stderr"
DEPTH_SHARE = 0.9
RUNTIME_SHARE = 0.9
_NOT_FOUND = 127
RANDOM_SEED = 20090722
# The process that is killed is the whole of fio; files are used as they are; offsets are the same
# in every run and do not depend on what was visited before.
FIXED_OPTIONS = {
    "thread": "1",
    "allow_file_create": "0",
    "fallocate": "none",
    "norandommap": "1",
    "allrandrepeat": "1",
    "randseed": str(RANDOM_SEED),
}


@dataclass(frozen=True)
class FioRun:
    """fio that ended well: ``series`` by log, its job file, its answer and its messages."""

    result: FioResult
    series: Mapping[str, tuple[Series, ...]]
    artefacts: tuple[Artefact, ...]
    messages: str


def run_fio(drive: Drive, job: str, timeout: float, logs: Mapping[str, int]) -> FioRun:
    """Run a job file on a drive; ``logs`` are those of its ``log_options``, with their windows.

    Raises RunFailure with all that fio said as evidence: ``killed`` when a signal ended it,
    ``space`` when the disk was full, ``workload`` for every other end that is not a good one;
    ``tool`` when there is no fio; and what ``Drive.execute`` raises.
    """
    argv = ["fio", "--output-format=json+", "--eta=never", JOB_FILE]
    files = {JOB_FILE: job.encode()}
    collect = [f"{log}_iops.log" for log in logs]
    try:
        done = drive.execute(argv, timeout=timeout, files=files, collect=collect)
    except HostError as error:
        raise RunFailure("tool", error.what, error.why, "apt-get install fio") from error
    except RunFailure as failure:
        failure.evidence += tuple(files.items())
        raise
    evidence = (*files.items(), (ANSWER, done.stdout), (MESSAGES, done.stderr))
    result = _read_answer(done, evidence)
    before, answer = _split_answer(done.stdout)
    messages = b"\n".join(part for part in (before.strip(), done.stderr.strip()) if part)
    return FioRun(
        result,
        {log: parse_iops_log(done.files.get(f"{log}_iops.log", b""), logs[log]) for log in logs},
        tuple(_artefacts({**files, ANSWER: answer, MESSAGES: messages})),
        messages.decode("utf-8", "replace"),
    )


def _read_answer(done: Execution, evidence: tuple[tuple[str, bytes], ...]) -> FioResult:
    if done.returncode < 0:
        what = f"fio was killed by {_signal_name(-done.returncode)}"
        raise RunFailure("killed", what, evidence=evidence)
    if done.returncode == _NOT_FOUND:
        why = _last_lines(done.stderr)
        raise RunFailure("tool", "fio could not be started", why, evidence=evidence)
    try:
        result = parse_fio_output(done.stdout)
    except ValueError as error:
        status = done.returncode
        what = f"fio failed with status {status}" if status else "fio's answer cannot be read"
        why = "\n".join(filter(None, [_last_lines(done.stderr), str(error)]))
        raise RunFailure("workload", what, why, evidence=evidence) from None
    if wrong := [job for job in result.jobs if job.error]:
        kind = "space" if any(job.error in NO_SPACE for job in wrong) else "workload"
        what = "; ".join(f"job {job.name[:60]}: {job.error_text}" for job in wrong[:3])
        raise RunFailure(kind, f"fio failed, {what}", _last_lines(done.stderr), evidence=evidence)
    if done.returncode:
        what = f"fio ended with status {done.returncode}"
        raise RunFailure("workload", what, _last_lines(done.stderr), evidence=evidence)
    return result


def _signal_name(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")


def _last_lines(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return "\n".join(line[:300] for line in lines[-5:])


def _split_answer(output: bytes) -> tuple[bytes, bytes]:
    """What fio printed before its JSON, and the JSON."""
    start = 0 if output.startswith(b"{") else output.find(b"\n{") + 1
    return output[:start], output[start:]


def _artefacts(files: Mapping[str, bytes]) -> list[Artefact]:
    return [
        Artefact(name, "application/json" if name == ANSWER else "text/plain", content)
        for name, content in files.items()
        if content
    ]


def render_options(name: str, options: Mapping[str, str]) -> str:
    """One section of a job file."""
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in options.items())


def render_milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def log_window(runtime: float) -> int:
    """Milliseconds of one point of a log: a hundred points a run and at most ten a second."""
    return min(1000, max(100, round(runtime * 10)))


def log_options(runtime: float, log: str) -> dict[str, str]:
    """fio's own record of its speed."""
    window = str(log_window(runtime))
    return {"write_iops_log": log, "log_avg_msec": window, "per_job_logs": "0"}


def broken_answer(run: FioRun, why: str) -> RunFailure:
    """fio ended well, and yet did not do what it was asked for."""
    evidence = tuple((kept.name, kept.content) for kept in run.artefacts)
    return RunFailure("workload", "fio's answer is not that of the load", why, evidence=evidence)


def check_depth(job: FioJob, depth: int) -> Check:
    """Whether the queue was as deep as asked for in at least 9 of 10 submissions, those left out
    that fill it: a slow disk takes few in a second."""
    filling = job.clones * (depth - 1)
    later = sum(each.operations for each in (job.read, job.write, job.trim)) - filling
    reached = job.share_at_depth(depth) * (later + filling)
    share = min(1.0, reached / later) if later > 0 else 0.0
    return Check(
        f"{job.name[:60]}: queue depth",
        str(depth),
        f"reached by {share:.1%} of the submissions",
        "fio's iodepth_level",
        share >= DEPTH_SHARE,
    )


def check_runtime(job: FioJob, seconds: float) -> Check:
    """Whether it ran as long as asked for: time-based jobs do, unless something ended them."""
    return Check(
        f"{job.name[:60]}: measured time",
        f"{seconds:g} s",
        f"{job.runtime:.3g} s",
        "fio's job_runtime",
        job.runtime >= RUNTIME_SHARE * seconds,
    )


def check_messages(run: FioRun) -> Check:
    """What fio said, for people: what matters of it is checked by the others."""
    said = run.messages[:500] or "none"
    return Check("fio: messages", "none", said, "fio's stderr", True)
