"""The workloads of a study file: presets with changes, programs, users' fio job files."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from diskproof.records import WorkloadSpec, canonical_json
from diskproof.study import keys
from diskproof.study.job_file import find_job_mistakes
from diskproof.study.presets import PRESET_BY_NAME
from diskproof.study.programs import COMMAND, PROGRAM_BY_NAME
from diskproof.study.protocol import Protocol
from diskproof.study.toml_lines import Location, read_text, shown, unknown
from diskproof.units import parse_size

MAX_JOB_TEXT = 64 << 10


def _read_block_size(value: str) -> str:
    """``4k``, ``1M``, ``4KiB``: as fio takes it. Raises ValueError."""
    parse_size(value)
    found = re.fullmatch(r"([1-9][0-9]{0,6})([kKmM]?)(i[bB])?", value)
    if not found or (found[3] and not found[2]):
        raise ValueError(f"{shown(value)} is not a block size like 4k, 4KiB or 1m")
    return found[1] + (found[2].lower() if found[3] else found[2])


_DISTRIBUTION = r"random|(zipf|pareto|normal):[0-9.]{1,6}"
FIO_OPTIONS: Mapping[str, keys.Option] = {
    "rw": keys.like("", r"(rand)?(read|write|rw)", "a way to read or write that fio has"),
    "bs": keys.Option("", _read_block_size),
    "iodepth": keys.count(1, 1, 4096),
    "fsync": keys.count(0, 0, 1_000_000, "writes for each flush"),
    "rwmixread": keys.count(0, 0, 100, "percent"),
    "distribution": keys.like("random", _DISTRIBUTION, "a distribution like zipf:1.2"),
    "primary": keys.Option("iops", keys.choice("iops", "bandwidth")),
}
"""What a fio load is made of; a preset says which."""

CACHE_LIMIT = "cache_limit"
"""Option of a workload whose size the plan chose: bytes of memory, page cache included, that all
that a run starts may have. A size that a study names has none: its cache is the host's."""


@dataclass(frozen=True)
class WorkloadTable:
    """The keys that ``[workloads.NAME]`` may have whatever it is. None: as the preset or the
    protocol says."""

    preset: str | None = keys.field(None, keys.text())
    job: str | None = keys.field(None, keys.text())
    command: tuple[str, ...] | None = keys.field(None, keys.some(keys.argument, 1000))
    runtime: float | None = keys.field(None, keys.duration(1))
    ramp: float | None = keys.field(None, keys.duration(0))
    size: int | None = keys.field(None, keys.auto_size)
    fill: bool | None = keys.field(None, keys.flag)


def read_workloads(
    content: object, protocol: Protocol, folder: Path, mistakes: keys.Mistakes
) -> Iterator[WorkloadSpec]:
    """Each as a spec; ``folder`` is where fio job files are looked for. Mistakes are noted."""
    place = ("workloads",)
    if isinstance(content, str | list):
        asked, content = content, {}
        with mistakes.noting(place, asked):
            content = dict.fromkeys(_read_names(asked), {})
    elif content == {}:
        mistakes.add(place, "workloads: at least 1 is needed")
    for name, given in keys.read_tables(content, place, mistakes):
        own = {each: value for each, value in given.items() if each not in _COMMON}
        table = keys.read_table(WorkloadTable, given, (*place, name), mistakes, own)
        if table.job is not None:
            yield _job_workload(name, table, own, protocol, folder, mistakes)
        elif spec := _named_workload(name, table, own, protocol, mistakes):
            yield spec


_COMMON = keys.of(WorkloadTable)
_read_names = keys.one_or_some(keys.text(), 1000)


def _named_workload(
    name: str,
    table: WorkloadTable,
    own: dict[str, object],
    protocol: Protocol,
    mistakes: keys.Mistakes,
) -> WorkloadSpec | None:
    """A preset or a program, with changes."""
    place = ("workloads", name)
    wanted = COMMAND if table.command is not None else table.preset or name
    if program := PROGRAM_BY_NAME.get(wanted):
        if table.command is not None:
            own[COMMAND] = canonical_json(table.command)
        what = f"key of {program.name}"
        shaped = keys.read_options(program.options, own, place, mistakes, what, _COMMON)
        shaped |= {**program.fixed, **_common_options(table, protocol, program.fill, 0.0)}
        return WorkloadSpec(name, program.kind, tuple(sorted(shaped.items())))
    preset = PRESET_BY_NAME.get(wanted)
    if preset is None:
        known = [*PRESET_BY_NAME, *PROGRAM_BY_NAME]
        mistakes.add(place, unknown("workload", wanted, known), wanted)
        return None
    options = {
        name: replace(option, default=str(getattr(preset, name)))
        for name, option in FIO_OPTIONS.items()
    }
    shaped = keys.read_options(options, own, place, mistakes, "key", _COMMON)
    ramp = 0.0 if preset.cold else protocol.ramp
    shaped |= _common_options(table, protocol, preset.fill, ramp)
    return WorkloadSpec(name, "fio", tuple(sorted(shaped.items())))


def _job_workload(
    name: str,
    table: WorkloadTable,
    own: dict[str, object],
    protocol: Protocol,
    folder: Path,
    mistakes: keys.Mistakes,
) -> WorkloadSpec:
    """A user's fio job file. What shapes the load stands in that file, not in the study."""
    place = ("workloads", name)
    load = [each for each in own if each in FIO_OPTIONS and each != "primary"]
    for each in [*load, *(["preset"] if table.preset is not None else [])]:
        own.pop(each, None)
        mistakes.add((*place, each), f"{each}: this goes into the fio job file")
    options = {"primary": FIO_OPTIONS["primary"]}
    shaped = keys.read_options(options, own, place, mistakes, "key", _COMMON)
    shaped |= _common_options(table, protocol, True, protocol.ramp)
    shaped["job"] = _job_text(folder / (table.job or ""), (*place, "job"), mistakes)
    return WorkloadSpec(name, "fio-job", tuple(sorted(shaped.items())))


def _common_options(
    table: WorkloadTable, protocol: Protocol, fill: bool, ramp: float
) -> dict[str, str]:
    """What every workload has; ``fill`` and ``ramp`` unless its table says otherwise."""
    runtime = protocol.runtime if table.runtime is None else table.runtime
    ramp = ramp if table.ramp is None else table.ramp
    size = table.size or protocol.size
    fill = fill if table.fill is None else table.fill
    return {
        "runtime": f"{runtime:g}",
        "ramp": f"{ramp:g}",
        "fill": "on" if fill else "off",
        "size": "auto" if size is None else str(size),
    }


def _job_text(file: Path, location: Location, mistakes: keys.Mistakes) -> str:
    """Content of a fio job file, checked; part of the spec, so that the cell's id covers it."""
    try:
        job = read_text(file, MAX_JOB_TEXT)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        mistakes.add(location, f"cannot read the fio job file {file}: {why}")
        return ""
    for line, message in find_job_mistakes(job):
        mistakes.add(location, f"{file}:{line}: {message}")
    return job
