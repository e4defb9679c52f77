"""fio's JSON to records. Everything in it is bounded: it may come from a guest or a stranger."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

MAX_BYTES = 64 << 20
MAX_DOCUMENTS = 1000
MAX_JOBS = 10_000
MAX_BINS = 10_000
MAX_NUMBER = 1e18
MAX_DAMAGED = 100
READ_IN_VAIN = 3  # times the text's length
_NANO = 1e-9
_KEPT_TEXT = 4000


@dataclass(frozen=True)
class Latency:
    """Times in seconds of ``count`` operations. ``percentiles`` are (percent, seconds), ``bins``
    (seconds, operations); both rise, and are empty when fio was not asked for them."""

    count: int = 0
    mean: float = 0.0
    smallest: float = 0.0
    largest: float = 0.0
    percentiles: tuple[tuple[float, float], ...] = ()
    bins: tuple[tuple[float, int], ...] = ()

    def find_percentile(self, percent: float) -> float | None:
        """What fio printed for exactly this percent, in seconds."""
        return dict(self.percentiles).get(percent)


@dataclass(frozen=True)
class Direction:
    """One direction of a job. ``bandwidth`` is in bytes/s, ``runtime`` in seconds."""

    operations: int = 0
    bytes: int = 0
    iops: float = 0.0
    bandwidth: float = 0.0
    runtime: float = 0.0
    slat: Latency = Latency()
    clat: Latency = Latency()
    lat: Latency = Latency()

    @property
    def latency(self) -> Latency:
        """The distribution that fio detailed: of the whole time where it has percentiles, else
        from submission to completion."""
        return self.lat if self.lat.percentiles else self.clat


@dataclass(frozen=True)
class FioJob:
    """One job, or several clones of one taken together.

    ``error`` is an errno or 0. ``flush`` are the latencies of its syncs. ``depth_levels`` are
    (lowest depth, share of submissions), shares adding up to 1. CPU figures are percent of one CPU.
    """

    name: str
    error: int
    options: Mapping[str, str]
    read: Direction
    write: Direction
    trim: Direction
    flush: Latency
    depth_levels: tuple[tuple[int, float], ...]
    user_cpu: float
    system_cpu: float
    runtime: float
    clones: int = 1

    @property
    def error_text(self) -> str:
        # fio prints its -1 (libaio where a container's filter refuses io_pgetevents) as 2**32 - 1.
        signed = (self.error + 2**31) % 2**32 - 2**31
        return os.strerror(signed) if self.error else ""

    def share_at_depth(self, depth: int) -> float:
        """Share of submissions that found the queue this deep, as far as fio's classes (1, 2, 4,
        ... 64) can tell."""
        reachable = [lowest for lowest, _ in self.depth_levels if lowest <= depth]
        return sum(
            share for lowest, share in self.depth_levels if lowest >= max(reachable, default=0)
        )


@dataclass(frozen=True)
class FioResult:
    """One document of fio: the jobs in its order. ``ended`` is a Unix time, ``elapsed`` seconds."""

    version: str
    ended: float
    elapsed: float
    jobs: tuple[FioJob, ...]
    options: Mapping[str, str] = field(default_factory=dict)


def parse_fio_output(data: bytes) -> FioResult:
    """The last document of fio's output: with a report interval, the only complete one.

    Raises ValueError with the reason when there is none or it is not what fio writes.
    """
    return parse_fio_documents(data)[-1]


def parse_fio_documents(data: bytes) -> tuple[FioResult, ...]:
    """Every document of fio's output, at least one.

    Raises ValueError with the reason when there is none or one is not what fio writes.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    text = data.decode("utf-8", "replace")
    results = tuple(map(_parse_document, _documents(text)))
    if not results:
        raise ValueError("there is no JSON of fio in it (run fio with --output-format=json+)")
    return results


def _documents(text: str) -> Iterator[Mapping[str, object]]:
    """JSON objects that begin a line. A damaged one is looked into for whole ones, as long as what
    is read in vain stays in proportion to the text: else the time would grow with its square."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    reason, found, failed = "", 0, 0
    in_vain = READ_IN_VAIN * len(text)
    start = _next_object(text, 0)
    while start >= 0 and in_vain >= 0 and failed < MAX_DAMAGED:
        try:
            content, after = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            reason = str(error)
            failed += 1  # each counts the lines before it
            in_vain -= getattr(error, "pos", len(text)) - start
            start = _next_object(text, start + 1)
            continue
        if isinstance(content, dict) and "jobs" in content:
            found += 1
            if found > MAX_DOCUMENTS:
                raise ValueError(f"there are more than {MAX_DOCUMENTS} documents in it")
            yield content
        start = _next_object(text, after)
    if not found and reason:
        raise ValueError(f"its JSON cannot be read: {reason}")


def _next_object(text: str, start: int) -> int:
    """Place of the next brace that begins a line, or directly follows the last document."""
    if text.startswith("{", start) and (start == 0 or text[start - 1] in "\n}"):
        return start
    place = text.find("\n{", start)
    return place + 1 if place >= 0 else -1


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


# -- one document ---------------------------------------------------------------------------


def _parse_document(content: Mapping[str, object]) -> FioResult:
    jobs = content.get("jobs")
    if not isinstance(jobs, list) or len(jobs) > MAX_JOBS:
        raise ValueError("'jobs' is not a list of jobs")
    options = _options(content.get("global options"))
    parsed = tuple(_parse_job(job, options, f"jobs[{n}]") for n, job in enumerate(jobs))
    elapsed = max((_number(job, "elapsed", "job", 0.0) for job in jobs), default=0.0)
    millis = _number(content, "timestamp_ms", "document", 0.0)
    ended = millis / 1000 or _number(content, "timestamp", "document", 0.0)
    version = _text(content.get("fio version", ""), 100)
    return FioResult(version, ended, elapsed, parsed, options)


def _parse_job(content: object, shared: Mapping[str, str], place: str) -> FioJob:
    job = _object(content, place)
    name = job.get("jobname")
    if not isinstance(name, str):
        raise ValueError(f"{place} has no 'jobname'")
    place = f"job {name[:60]!r}"
    sync = job.get("sync")
    flush = _object(sync, f"{place} sync") if sync is not None else {}
    return FioJob(
        name=name,
        error=int(_number(job, "error", place, 0.0)),
        options={**shared, **_options(job.get("job options"))},
        read=_parse_side(job, "read", place),
        write=_parse_side(job, "write", place),
        trim=_parse_side(job, "trim", place),
        flush=_parse_latency(flush, "lat_ns", f"{place} sync"),
        depth_levels=_parse_depths(job.get("iodepth_level"), place),
        user_cpu=_number(job, "usr_cpu", place, 0.0),
        system_cpu=_number(job, "sys_cpu", place, 0.0),
        runtime=_number(job, "job_runtime", place, 0.0) / 1000,
    )


def _parse_side(job: Mapping[str, object], name: str, place: str) -> Direction:
    if job.get(name) is None:
        return Direction()
    place = f"{place} {name}"
    side = _object(job[name], place)
    if "clat_ns" not in side:
        raise ValueError(f"{place} has no 'clat_ns' (fio before 3.0 is not read)")
    return Direction(
        operations=int(_number(side, "total_ios", place)),
        bytes=int(_number(side, "io_bytes", place)),
        iops=_number(side, "iops", place),
        # Before fio 3.6 there was only the rounded figure in KiB/s.
        bandwidth=_number(side, "bw_bytes", place, 1024 * _number(side, "bw", place, 0.0)),
        runtime=_number(side, "runtime", place, 0.0) / 1000,
        slat=_parse_latency(side, "slat_ns", place),
        clat=_parse_latency(side, "clat_ns", place),
        lat=_parse_latency(side, "lat_ns", place),
    )


def _parse_latency(parent: Mapping[str, object], key: str, place: str) -> Latency:
    if parent.get(key) is None:
        return Latency()
    place = f"{place} {key}"
    content = _object(parent[key], place)
    percentiles = _pairs(content.get("percentile"), place, float)
    bins = _pairs(content.get("bins"), place, int)
    return Latency(
        count=int(_number(content, "N", place, 0.0)),
        mean=_number(content, "mean", place, 0.0) * _NANO,
        smallest=_number(content, "min", place, 0.0) * _NANO,
        largest=_number(content, "max", place, 0.0) * _NANO,
        percentiles=tuple((percent, value * _NANO) for percent, value in percentiles),
        bins=tuple((nanos * _NANO, int(count)) for nanos, count in bins if count),
    )


def _pairs(content: object, place: str, kind: Callable[[str], float]) -> list[tuple[float, float]]:
    """``{"99.000000": 43776}`` as sorted pairs of numbers."""
    if content is None:
        return []
    table = _object(content, place)
    if len(table) > MAX_BINS:
        raise ValueError(f"{place} has more than {MAX_BINS} bins")
    pairs = []
    for key in table:
        try:
            number = float(kind(key))
        except (ValueError, OverflowError):
            raise ValueError(f"{place}: {key[:40]!r} is not a number") from None
        if not 0 <= number <= MAX_NUMBER:
            raise ValueError(f"{place}: {key[:40]!r} is out of range")
        pairs.append((number, _number(table, key, place)))
    return sorted(pairs)


def _parse_depths(content: object, place: str) -> tuple[tuple[int, float], ...]:
    """Shares of the depth classes. fio counts a sync as a submission without an operation, so that
    its percentages can add up to more than 100."""
    if content is None:
        return ()
    pairs = _pairs(
        {key.removeprefix(">="): value for key, value in _object(content, place).items()},
        f"{place} iodepth_level",
        int,
    )
    total = math.fsum(share for _, share in pairs)
    return tuple((int(depth), share / total) for depth, share in pairs) if total else ()


def _options(content: object) -> dict[str, str]:
    if not isinstance(content, dict):
        return {}
    return {_text(name, 200): _text(value, _KEPT_TEXT) for name, value in content.items()}


def _text(content: object, most: int) -> str:
    """Text that can be written: JSON may hold halves of characters."""
    return str(content)[:most].encode("utf-8", "replace").decode()


def _object(content: object, place: str) -> Mapping[str, object]:
    if not isinstance(content, dict):
        raise ValueError(f"{place} is not an object")
    return content


def _number(
    parent: Mapping[str, object], key: str, place: str, default: float | None = None
) -> float:
    """A number of fio: finite, not negative, bounded."""
    value = parent.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{place}: {key!r} is missing or not a number")
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"{place}: {key!r} is out of range")
    return float(value)
