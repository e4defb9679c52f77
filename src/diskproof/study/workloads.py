"""The workloads of a study file: presets with changes, programs, users' fio job files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from diskproof.records import WorkloadSpec, canonical_json
from diskproof.study.job_file import find_job_mistakes
from diskproof.study.presets import PRESET_BY_NAME
from diskproof.study.programs import COMMAND, PROGRAM_BY_NAME, Program
from diskproof.study.toml_lines import Location, Mistakes, unknown

if TYPE_CHECKING:
    from diskproof.study.file import ProtocolTable, StudyTable, WorkloadTable

MAX_JOB_TEXT = 64 << 10
PRESET_FIELDS = ("rw", "bs", "iodepth", "fsync", "rwmixread", "distribution", "primary")


def read_workloads(table: StudyTable, folder: Path, mistakes: Mistakes) -> Iterator[WorkloadSpec]:
    """Each as a spec; ``folder`` is where fio job files are looked for. Mistakes are noted."""
    for name, options in table.workloads.items():
        location = ("workloads", name)
        if options.job is not None:
            yield _job_workload(name, options, table.protocol, folder, mistakes)
            continue
        wanted = COMMAND if options.command is not None else options.preset or name
        preset = PRESET_BY_NAME.get(wanted)
        if program := PROGRAM_BY_NAME.get(wanted):
            yield _program_workload(name, options, program, table.protocol, mistakes)
            continue
        for key in options.model_extra or {}:
            mistakes.add((*location, key), unknown("key", key, type(options).model_fields))
        if preset is None:
            known = [*PRESET_BY_NAME, *PROGRAM_BY_NAME]
            mistakes.add(location, unknown("workload", wanted, known), wanted)
            continue
        shaped = {
            field: str(getattr(preset, field) if (own := getattr(options, field)) is None else own)
            for field in PRESET_FIELDS
        }
        ramp = 0.0 if preset.cold else table.protocol.ramp
        shaped |= _common_options(options, table.protocol, preset.fill, ramp)
        yield WorkloadSpec(name, "fio", tuple(sorted(shaped.items())))


def _program_workload(
    name: str,
    options: WorkloadTable,
    program: Program,
    protocol: ProtocolTable,
    mistakes: Mistakes,
) -> WorkloadSpec:
    """A program with its own keys; those that shape a fio load mean nothing to it."""
    location = ("workloads", name)
    given = {key: str(value) for key, value in (options.model_extra or {}).items()}
    if options.command is not None:
        given[COMMAND] = canonical_json(options.command)
    for field in PRESET_FIELDS:
        if (value := getattr(options, field)) is not None:
            given[field] = str(value)
    shaped = {key: option.default_text for key, option in program.options.items()}
    for key, text in given.items():
        if key not in program.options:
            mistakes.add((*location, key), unknown(f"key of {program.name}", key, program.options))
            continue
        try:
            shaped[key] = program.options[key].parse(text)
        except ValueError as error:
            mistakes.add((*location, key), f"{key}: {error}", text)
    for key, option in program.options.items():
        if option.default is None and key not in given:
            mistakes.add(location, f"workloads.{name}: {key} is missing")
    shaped |= {**program.fixed, **_common_options(options, protocol, program.fill, 0.0)}
    return WorkloadSpec(name, program.kind, tuple(sorted(shaped.items())))


def _job_workload(
    name: str, options: WorkloadTable, protocol: ProtocolTable, folder: Path, mistakes: Mistakes
) -> WorkloadSpec:
    """A user's fio job file. What shapes the load stands in that file, not in the study."""
    location = ("workloads", name)
    for field in ("preset", *PRESET_FIELDS):
        if field != "primary" and getattr(options, field) is not None:
            mistakes.add((*location, field), f"{field}: this goes into the fio job file")
    shaped = _common_options(options, protocol, True, protocol.ramp)
    shaped["primary"] = options.primary or "iops"
    for key in options.model_extra or {}:
        mistakes.add((*location, key), unknown("key", key, type(options).model_fields))
    shaped["job"] = _job_text(folder / (options.job or ""), (*location, "job"), mistakes)
    return WorkloadSpec(name, "fio-job", tuple(sorted(shaped.items())))


def _common_options(
    options: WorkloadTable, protocol: ProtocolTable, fill: bool, ramp: float
) -> dict[str, str]:
    """What every workload has; ``fill`` and ``ramp`` unless its table says otherwise."""
    runtime = protocol.runtime if options.runtime is None else options.runtime
    ramp = ramp if options.ramp is None else options.ramp
    size = options.size or protocol.size
    fill = fill if options.fill is None else options.fill
    return {
        "runtime": f"{runtime:g}",
        "ramp": f"{ramp:g}",
        "fill": "on" if fill else "off",
        "size": "auto" if size is None else str(size),
    }


def _job_text(file: Path, location: Location, mistakes: Mistakes) -> str:
    """Content of a fio job file, checked; part of the spec, so that the cell's id covers it."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_JOB_TEXT + 1)
        if len(data) > MAX_JOB_TEXT:
            raise ValueError(f"larger than {MAX_JOB_TEXT >> 10} KiB")
        text = data.decode()
    except (OSError, ValueError) as error:
        mistakes.add(location, f"cannot read the fio job file {file}: {error}")
        return ""
    for line, message in find_job_mistakes(text):
        mistakes.add(location, f"{file}:{line}: {message}")
    return text
