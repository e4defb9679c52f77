"""Which cells fio's jobs are: levels, workload, and names that tell workloads apart."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diskproof.fio_output import FioJob
from diskproof.records import Cell, WorkloadSpec, content_id
from diskproof.units import parse_bytes, render_bytes

KIND = "imported"
# How the disk is reached: what a study varies.
LEVELS = (
    "ioengine",
    "direct",
    "sync",
    "atomic",
    "hipri",
    "sqthread_poll",
    "registerfiles",
    "fixedbufs",
    "nonvectored",
    "uncached",
    "iomem",
    "fallocate",
)
# Where, how it is reported and how it is scheduled beside other jobs: neither level nor load.
_NO_LOAD = re.compile(
    "name|filename|directory|filename_format|description|group_reporting|new_group|stonewall"
    "|wait_for_previous|wait_for|log_.*|write_.*_log|per_job_logs|disk_util|.*lat_percentiles"
    "|percentile_list|unlink|unlink_each_loop|exitall|status-interval|eta|output.*|minimal"
)
_ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "mem": "iomem",
}
_BYTES = frozenset({"bs", "size", "io_size", "filesize", "offset"})
_SHORT = {"iodepth": "depth", "numjobs": "jobs"}
_MAX_LEVEL = 200
_MAX_NAME = 120
_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Shape:
    """A job's own name, its levels and the options that shape its load."""

    job: str
    levels: _Pairs
    load: _Pairs


def job_cells(jobs: Sequence[FioJob]) -> list[Cell]:
    """The cell of each job.

    Jobs of equal load are one workload, called by their job name if they share one. Jobs that
    differ in nothing but their name are kept apart by a level ``job``.
    """
    shapes = [_shape(job) for job in jobs]
    factors = sorted({name for shape in shapes for name, _ in shape.levels})
    names = _workload_names(shapes)
    jobs_of: dict[tuple[_Pairs, _Pairs], set[str]] = defaultdict(set)
    for shape in shapes:
        jobs_of[shape.levels, shape.load].add(shape.job)
    cells = []
    for shape in shapes:
        # What one job sets and another leaves to fio is a difference that must be seen.
        levels = dict.fromkeys(factors, "default") | dict(shape.levels)
        if len(jobs_of[shape.levels, shape.load]) > 1:
            levels["job"] = shape.job
        spec = WorkloadSpec(names[shape.load], KIND, shape.load)
        cells.append(Cell(tuple(sorted(levels.items())), spec))
    return cells


def clean_name(text: str) -> str:
    """A foreign name as a store takes it: short and printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:_MAX_NAME].strip()


def _shape(job: FioJob) -> _Shape:
    options = {}
    for name, value in job.options.items():
        clean = clean_name(name)
        options[_ALIASES.get(clean, clean)] = value
    if "buffered" in options:
        options["direct"] = "0" if _canonical("buffered", options.pop("buffered")) != "0" else "1"
    levels, load = [], []
    for name, value in sorted(options.items()):
        if name in LEVELS:
            levels.append((name, _canonical(name, value)[:_MAX_LEVEL]))
        elif name and not _NO_LOAD.fullmatch(name):
            load.append((name, _canonical(name, value)))
    return _Shape(clean_name(job.name) or "job", tuple(levels), tuple(load))


def _canonical(name: str, value: str) -> str:
    """One spelling for what means the same: bytes as numbers, a bare flag as 1."""
    value = value.strip()
    if name in _BYTES:
        try:
            return str(parse_bytes(value))
        except ValueError:
            return value
    return value or "1"


# -- names ----------------------------------------------------------------------------------


def _workload_names(shapes: Iterable[_Shape]) -> Mapping[_Pairs, str]:
    """A name for each load, no two alike: a store ranks by it."""
    called: dict[_Pairs, set[str]] = defaultdict(set)
    for shape in shapes:
        called[shape.load].add(shape.job)
    loads_of: dict[str, list[_Pairs]] = defaultdict(list)
    for load, jobs in called.items():
        loads_of[next(iter(jobs)) if len(jobs) == 1 else _describe(load)].append(load)
    names: dict[_Pairs, str] = {}
    taken: set[str] = set()
    for base, loads in loads_of.items():
        varying = _varying(loads)
        for load in loads:
            parts = [f"{_SHORT.get(name, name)}={_render(name, load)}" for name in varying]
            name = " ".join([base, *parts])
            if len(name) > _MAX_NAME or name in taken:
                name = f"{base[:80]} {content_id(load)}"
            taken.add(name)
            names[load] = name
    return names


def _describe(load: _Pairs) -> str:
    """What jobs of several names have in common: ``randread 4KiB``."""
    kind = dict(load).get("rw", "read")
    return clean_name(f"{kind} {_render('bs', load)}")


def _render(name: str, load: _Pairs) -> str:
    value = dict(load).get(name, "default")
    if name in _BYTES and value.isascii() and value.isdigit():
        value = render_bytes(int(value)).replace(" ", "")
    return clean_name(value)


def _varying(loads: Sequence[_Pairs]) -> list[str]:
    """The options in which these loads differ."""
    names = sorted({name for load in loads for name, _ in load})
    tables = [dict(load) for load in loads]
    return [name for name in names if len({table.get(name) for table in tables}) > 1]
