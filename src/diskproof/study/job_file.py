"""A user's fio job file: read, and refused where it would leave the disk under test.

Only options that shape a load are taken. Those that name files, run commands, write logs or
expand variables (fio asks a shell for that) belong to diskproof or to nobody. Pure.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_JOBS = 64
# fio makes a process of each clone and holds memory for each request: a host must survive a typo.
_MOST = {"numjobs": 256, "iodepth": 4096}
# Engines that need nothing but a file name; the daemon frontend has its own (nbd).
ENGINES = ("libaio", "io_uring", "posixaio", "psync", "sync", "pvsync", "pvsync2")

_LOAD = """
    description rw readwrite rw_sequencer rwmixread rwmixwrite bs blocksize ba blockalign bsrange
    blocksize_range bssplit bs_unaligned blocksize_unaligned size io_size io_limit offset
    offset_increment offset_align number_ios loops numjobs thread runtime timeout time_based
    ramp_time ioengine direct buffered sync fsync fdatasync end_fsync fsync_on_close
    sync_file_range write_barrier invalidate fallocate overwrite
    iodepth iodepth_batch iodepth_batch_submit iodepth_batch_complete iodepth_batch_complete_min
    iodepth_batch_complete_max iodepth_low io_submit_mode serialize_overlap
    random_distribution random_generator percentage_random norandommap softrandommap randrepeat
    allrandrepeat randseed
    thinktime thinktime_spin thinktime_blocks thinktime_blocks_type rate rate_min rate_iops
    rate_iops_min rate_process rate_cycle rate_ignore_thinktime
    max_latency latency_target latency_window latency_percentile
    zero_buffers refill_buffers scramble_buffers buffer_pattern buffer_compress_percentage
    buffer_compress_chunk dedupe_percentage
    verify do_verify verify_interval verify_offset verify_pattern verify_fatal verify_backlog
    verify_backlog_batch verify_async
    cpus_allowed cpus_allowed_policy cpumask nice prio prioclass
    hipri fixedbufs registerfiles sqthread_poll nonvectored nowait userspace_reap
    clocksource percentile_list significant_figures group_reporting kb_base unit_base disk_util
"""
OPTIONS = frozenset(_LOAD.split())
_DISK = "the disk under test is filled in; leave it out"
_ONE_PHASE = "all jobs of a workload run at the same time; make it a workload of its own"
_REASONS = {
    "filename": _DISK,
    "directory": _DISK,
    "filename_format": _DISK,
    "opendir": _DISK,
    "uri": _DISK,
    "nrfiles": _DISK,
    "stonewall": _ONE_PHASE,
    "wait_for_previous": _ONE_PHASE,
    "wait_for": _ONE_PHASE,
    "startdelay": _ONE_PHASE,
    "start_delay": _ONE_PHASE,
    "exec_prerun": "a job may not run commands",
    "exec_postrun": "a job may not run commands",
}


@dataclass(frozen=True)
class JobSection:
    """One ``[section]``: the options in effect for it, those of ``[global]`` before it included.

    ``line`` is where its header stands, counted from 1. An option without a value is ``1``.
    """

    name: str
    line: int
    options: dict[str, str]

    def option(self, name: str, default: str = "") -> str:
        return self.options.get(name, default)


def parse_job_file(text: str) -> tuple[JobSection, ...]:
    """The jobs of a file in its order; ``[global]`` is not one. Raises ValueError."""
    for line, message in find_job_mistakes(text):
        raise ValueError(f"line {line}: {message}")
    shared: dict[str, str] = {}
    jobs: list[JobSection] = []
    for number, content in _lines(text):
        if name := _section_name(content):
            if name != "global":
                jobs.append(JobSection(name, number, dict(shared)))
            target = shared if name == "global" else jobs[-1].options
        else:
            key, value = _split_option(content)
            target[key] = value
    return tuple(jobs)


def find_job_mistakes(text: str) -> Iterator[tuple[int, str]]:
    """What keeps a job file from being run, as (line, message)."""
    names: list[str] = []
    inside = False
    for number, content in _lines(text):
        if name := _section_name(content):
            inside = True
            yield from _name_mistakes(number, name, names)
            names += [name] if name != "global" else []
        elif not inside:
            yield number, "an option before the first [section]"
        else:
            yield from ((number, message) for message in _option_mistakes(content))
    if not 1 <= len(names) <= MAX_JOBS:
        yield 1, f"it has {len(names)} jobs, 1 to {MAX_JOBS} can be run"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with content and their numbers; fio's comments begin with ``;`` or ``#``."""
    for number, line in enumerate(text.split("\n"), 1):
        content = re.split("[;#]", line, maxsplit=1)[0].strip()
        if content:
            yield number, content


def _section_name(content: str) -> str:
    return content[1:-1].strip() if content[0] == "[" and content[-1] == "]" else ""


def _split_option(content: str) -> tuple[str, str]:
    name, equals, value = content.partition("=")
    return name.strip(), value.strip() if equals else "1"


def _name_mistakes(number: int, name: str, names: list[str]) -> Iterator[tuple[int, str]]:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}", name):
        yield number, f"{name[:60]!r} is no name of a job: letters, digits, . _ - (40 at most)"
    if name in names:
        yield number, f"there are two jobs {name!r}"


def _option_mistakes(content: str) -> Iterator[str]:
    name, value = _split_option(content)
    if name not in OPTIONS:
        yield _explain(name)
    elif not value.isprintable() or set("$`\\") & set(value):
        yield f"{name}: variables, commands and escapes are not expanded here"
    elif name.endswith("_pattern") and "'" in value:
        yield f"{name}: a pattern may not be read from a file"
    elif name == "ioengine" and value not in ENGINES:
        yield f"ioengine {value[:40]!r} is not one of {', '.join(ENGINES)}; or leave it out"
    elif name in _MOST and not (
        re.fullmatch("[0-9]{1,9}", value) and 0 < int(value) <= _MOST[name]
    ):
        yield f"{name} {value[:40]!r} is not a whole number from 1 to {_MOST[name]}"


def _explain(name: str) -> str:
    shown = name[:60]
    if reason := _REASONS.get(name):
        return f"{shown}: {reason}"
    close = difflib.get_close_matches(name[:60], OPTIONS, 1, 0.8)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    return f"{shown!r} is not an option of a load{guess} (docs/workloads.md lists them)"
