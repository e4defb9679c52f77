"""A study file: TOML in, a frozen ``Study`` out, every mistake named with its line."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.errors import StudyError
from diskproof.factors import FACTOR_BY_NAME, Factor
from diskproof.presets import PRESET_BY_NAME, Preset
from diskproof.records import BackingSpec, WorkloadSpec, content_id
from diskproof.toml_lines import find_line
from diskproof.units import parse_bytes, parse_seconds

MAX_TEXT = 1 << 20
MAX_LEVELS = 1000
BACKING_KINDS = ("directory",)
DEFAULT_BACKING = BackingSpec("directory", "directory", (("path", "diskproof-images"),))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Filter:
    """One ``[[only]]`` or ``[[exclude]]`` table: factor (or ``workload``) -> levels that match."""

    levels: tuple[tuple[str, frozenset[str]], ...]

    def matches(self, levels: Mapping[str, str], workload: str) -> bool:
        return all(
            (workload if name == "workload" else levels.get(name)) in wanted
            for name, wanted in self.levels
        )


@dataclass(frozen=True)
class Protocol:
    """How runs are made. Times in seconds; ``size`` in bytes, None for ``auto``."""

    blocks: int = 3
    seed: int = 0
    size: int | None = None
    runtime: float = 10.0
    ramp: float = 2.0
    run_timeout: float = 1800.0


@dataclass(frozen=True)
class Study:
    """A study as written. ``factors`` holds only what the file names, levels in its order."""

    name: str
    description: str
    text: str
    factors: tuple[tuple[str, tuple[str, ...]], ...]
    workloads: tuple[WorkloadSpec, ...]
    backings: tuple[BackingSpec, ...]
    only: tuple[Filter, ...]
    exclude: tuple[Filter, ...]
    protocol: Protocol

    @property
    def id(self) -> str:
        """Hash of what shapes a run; not of the number of blocks, so a study can be prolonged."""
        protocol = self.protocol
        filters = [
            [[name, sorted(levels)] for name, levels in each.levels]
            for each in (*self.only, Filter(()), *self.exclude)
        ]
        shape = [protocol.seed, protocol.size, protocol.run_timeout]
        workloads = [[w.name, w.kind, w.options] for w in self.workloads]
        backings = [[b.name, b.kind, b.options] for b in self.backings]
        return content_id([self.name, self.factors, workloads, backings, filters, shape])

    def levels(self, factor: Factor) -> tuple[str, ...]:
        """The levels the study asks for, or the factor's default."""
        return dict(self.factors).get(factor.name, (factor.default,))


def load_study(path: Path) -> Study:
    """Read a study file. Raises StudyError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TEXT + 1)
    except OSError as error:
        raise StudyError(f"cannot read the study {path}", error.strerror or "") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise StudyError(f"{path}: not a study file", "it is not UTF-8 text") from None
    return parse_study(text, str(path), folder=path.parent)


def parse_study(text: str, file: str = "study.toml", folder: Path = Path()) -> Study:
    """Text to Study; ``folder`` is where fio job files are looked for. Raises StudyError."""
    if len(text) > MAX_TEXT:
        raise StudyError(f"{file}: too large", f"a study has at most {MAX_TEXT >> 20} MiB")
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{file}:{line[1]}" if line else file
        raise StudyError(f"{where}: not valid TOML", str(error)) from None
    return _Reader(text, file, folder).read(content)


class _Reader:
    """Reads one file's content and gathers its mistakes, to name all of them at once."""

    def __init__(self, text: str, file: str, folder: Path) -> None:
        self.text = text
        self.file = file
        self.folder = folder
        self.problems: list[tuple[int, str]] = []

    def read(self, content: dict[str, Any]) -> Study:
        self.check_keys(content, _TOP, ())
        protocol = self.read_protocol(self.table(content, "protocol"))
        backings = self.read_backings(self.table(content, "backings"))
        factors = self.read_factors(self.table(content, "factors"), backings)
        workloads = self.read_workloads(content.get("workloads", ["rand-read-4k-d32"]), protocol)
        names = frozenset(spec.name for spec in workloads)
        filters = {
            key: tuple(self.read_filters(content.get(key, []), key, factors, names))
            for key in ("only", "exclude")
        }
        name = self.name(content.get("name", Path(self.file).stem), ("name",))
        description = self.text_of(content.get("description", ""), ("description",))
        self.raise_problems()
        return _with_seed(
            Study(
                name,
                description,
                self.text,
                factors,
                workloads,
                backings,
                filters["only"],
                filters["exclude"],
                protocol,
            )
        )

    # -- mistakes ---------------------------------------------------------------------------

    def problem(self, path: tuple[str | int, ...], message: str, value: object = None) -> None:
        self.problems.append((find_line(self.text, path, value) or 0, message))

    def raise_problems(self) -> None:
        if not self.problems:
            return
        lines = [
            f"{self.file}:{line}: {message}" if line else f"{self.file}: {message}"
            for line, message in sorted(set(self.problems))[:20]
        ]
        raise StudyError("\n".join(lines))

    def check_keys(
        self, table: Mapping[str, object], known: Iterable[str], path: tuple[str | int, ...]
    ) -> None:
        for key in table:
            if key not in known:
                self.problem((*path, key), _unknown("key", key, known))

    # -- small values -----------------------------------------------------------------------

    def table(self, content: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = content.get(key, {})
        if isinstance(value, dict):
            return value
        self.problem((key,), f"{key} is not a table; write [{key}]")
        return {}

    def text_of(self, value: object, path: tuple[str | int, ...]) -> str:
        if isinstance(value, str):
            return value
        self.problem(path, f"{path[-1]} is not a text")
        return ""

    def name(self, value: object, path: tuple[str | int, ...]) -> str:
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
        self.problem(
            path, f"{str(value)[:70]!r} is not a name: letters, digits, '.', '_', '-', at most 64"
        )
        return "unnamed"

    def number(self, table: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
        value = table.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.problem(("protocol", key), f"{key} = {value!r}: a whole number, {low} to {high}")
        return default

    def seconds(
        self, value: object, path: tuple[str | int, ...], default: float, high: float = 86400.0
    ) -> float:
        try:
            seconds = parse_seconds(value)  # type: ignore[arg-type]
        except ValueError as error:
            self.problem(path, f"{path[-1]}: {error}")
            return default
        if seconds > high:
            self.problem(path, f"{path[-1]} = {value!r} is longer than {high:.0f} s")
        return seconds

    def bytes_of(self, value: object, path: tuple[str | int, ...]) -> int:
        try:
            return parse_bytes(value)  # type: ignore[arg-type]
        except ValueError as error:
            self.problem(path, f"{path[-1]}: {error}")
            return 0

    # -- tables -----------------------------------------------------------------------------

    def read_protocol(self, table: dict[str, Any]) -> Protocol:
        self.check_keys(table, _PROTOCOL, ("protocol",))
        size = table.get("size", "auto")
        whole = None if size == "auto" else self.disk_size(size, ("protocol", "size"))
        return Protocol(
            blocks=self.number(table, "blocks", 3, 1, 10_000),
            seed=self.number(table, "seed", 0, 0, 2**31 - 1),
            size=whole,
            runtime=self.seconds(table.get("runtime", 10), ("protocol", "runtime"), 10.0),
            ramp=self.seconds(table.get("ramp", 2), ("protocol", "ramp"), 2.0),
            run_timeout=self.seconds(
                table.get("run_timeout", 1800), ("protocol", "run_timeout"), 1800.0
            ),
        )

    def disk_size(self, value: object, path: tuple[str | int, ...]) -> int:
        size = self.bytes_of(value, path)
        if size % (1 << 20) or size < 16 << 20:
            self.problem(path, f"size = {value!r}: whole MiB, at least 16MiB")
        return size

    def read_backings(self, table: dict[str, Any]) -> tuple[BackingSpec, ...]:
        found = []
        for key, options in table.items():
            path = ("backings", key)
            name = self.name(key, path)
            if not isinstance(options, dict):
                self.problem(path, f"backing {key!r} is not a table")
                continue
            kind = options.get("kind", "directory")
            if kind not in BACKING_KINDS:
                self.problem((*path, "kind"), _unknown("backing kind", str(kind), BACKING_KINDS))
            self.check_keys(options, ("kind", "path"), path)
            folder = self.text_of(options.get("path", ""), (*path, "path"))
            if not folder or "\0" in folder:
                self.problem(path, f"backing {key!r} needs a path")
            found.append(BackingSpec(name, "directory", (("path", folder),)))
        return tuple(found) or (DEFAULT_BACKING,)

    def read_factors(
        self, table: dict[str, Any], backings: tuple[BackingSpec, ...]
    ) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, tuple[str, ...]] = {"backing": tuple(b.name for b in backings)}
        for key, value in table.items():
            factor = FACTOR_BY_NAME.get(_canonical_factor(key))
            if factor is None:
                self.problem(("factors", key), _unknown("factor", key, FACTOR_BY_NAME))
                continue
            path = ("factors", key)
            levels = [self.level(factor, v, path, found["backing"]) for v in _as_list(value)]
            if not levels or len(levels) > MAX_LEVELS:
                self.problem(path, f"{key} needs 1 to {MAX_LEVELS} levels")
            found[factor.name] = tuple(dict.fromkeys(levels))
        return tuple(found.items())

    def level(
        self,
        factor: Factor,
        value: object,
        path: tuple[str | int, ...],
        backings: tuple[str, ...] = (),
    ) -> str:
        """One level in canonical spelling."""
        if factor.kind == "choice":
            text = (
                {True: "on", False: "off"}.get(value, str(value))
                if isinstance(value, bool)
                else str(value)
            )
            return self.choice(f"level of {factor.name}", text, factor.levels, path)
        if factor.kind == "name":
            return self.choice(f"level of {factor.name}", str(value), backings, path)
        try:
            count = parse_bytes(value)  # type: ignore[arg-type]
        except ValueError as error:
            self.problem(path, f"{factor.name}: {error}", value)
            return factor.default
        if not factor.low <= count <= factor.high:
            self.problem(path, f"{factor.name} = {value!r} is not in {factor.range_text}", value)
        return str(count) if factor.kind == "count" else render_level_bytes(count)

    def choice(
        self, what: str, value: str, known: Iterable[str], path: tuple[str | int, ...]
    ) -> str:
        if value not in known:
            self.problem(path, _unknown(what, value, known), value)
        return value

    def read_workloads(self, value: object, protocol: Protocol) -> tuple[WorkloadSpec, ...]:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list):
            value = {str(item): {} for item in value}
        if not isinstance(value, dict) or not value:
            self.problem(("workloads",), "workloads is a list of names or tables [workloads.NAME]")
            return ()
        return tuple(
            spec
            for name, options in value.items()
            if (spec := self.workload(name, options, protocol))
        )

    def workload(self, name: str, options: object, protocol: Protocol) -> WorkloadSpec | None:
        path = ("workloads", name)
        if not isinstance(options, dict):
            self.problem(path, f"workload {name!r} is not a table")
            return None
        self.name(name, path)
        common = self.common_options(options, path, protocol)
        if "job" in options:
            self.check_keys(options, (*_COMMON, "job"), path)
            content = self.job_text(options["job"], (*path, "job"))
            return WorkloadSpec(name, "fio-job", tuple(sorted({**common, "job": content}.items())))
        preset = PRESET_BY_NAME.get(str(options.get("preset", name)))
        if preset is None:
            wanted = str(options.get("preset", name))
            self.problem(path, _unknown("workload", wanted, PRESET_BY_NAME), wanted)
            return None
        self.check_keys(options, (*_COMMON, "preset", *_PRESET), path)
        shaped = self.preset_options(preset, options, path)
        return WorkloadSpec(name, "fio", tuple(sorted({**shaped, **common}.items())))

    def common_options(
        self, options: Mapping[str, Any], path: tuple[str | int, ...], protocol: Protocol
    ) -> dict[str, str]:
        runtime = self.seconds(
            options.get("runtime", protocol.runtime), (*path, "runtime"), protocol.runtime
        )
        ramp = self.seconds(options.get("ramp", protocol.ramp), (*path, "ramp"), protocol.ramp)
        if runtime < 1:
            self.problem((*path, "runtime"), "runtime: fio needs at least 1 s")
        fill = options.get(
            "fill", PRESET_BY_NAME[path[1]].fill if path[1] in PRESET_BY_NAME else True
        )
        size = protocol.size
        if "size" in options:
            size = self.disk_size(options["size"], (*path, "size"))
        return {
            "runtime": f"{runtime:g}",
            "ramp": f"{ramp:g}",
            "fill": "on" if fill is True else "off",
            "size": "auto" if size is None else str(size),
        }

    def preset_options(
        self, preset: Preset, options: Mapping[str, Any], path: tuple[str | int, ...]
    ) -> dict[str, str]:
        found = {}
        for key, pattern in _PRESET.items():
            text = str(options.get(key, getattr(preset, key)))
            if not re.fullmatch(pattern, text):
                self.problem((*path, key), f"{key} = {text!r} does not fit {pattern}", text)
            found[key] = text
        return found

    def job_text(self, value: object, path: tuple[str | int, ...]) -> str:
        """Content of a fio job file beside the study."""
        file = self.folder / self.text_of(value, path)
        try:
            with file.open("rb") as stream:
                data = stream.read((64 << 10) + 1)
            if len(data) > 64 << 10:
                raise ValueError("larger than 64 KiB")
            return data.decode()
        except (OSError, ValueError) as error:
            self.problem(path, f"cannot read the fio job file {file}: {error}")
            return ""

    def read_filters(
        self,
        value: object,
        key: str,
        factors: tuple[tuple[str, tuple[str, ...]], ...],
        workloads: frozenset[str],
    ) -> Iterable[Filter]:
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.problem((key,), f"{key} is a list of tables; write [[{key}]]")
            return
        for index, table in enumerate(value):
            yield Filter(
                tuple(
                    self.condition(name, wanted, (key, index, name), factors, workloads)
                    for name, wanted in table.items()
                )
            )

    def condition(
        self,
        name: str,
        value: object,
        path: tuple[str | int, ...],
        factors: tuple[tuple[str, tuple[str, ...]], ...],
        workloads: frozenset[str],
    ) -> tuple[str, frozenset[str]]:
        """One ``factor = levels`` of a filter; a level no cell can have is a mistake."""
        if name == "workload":
            wanted = [self.choice("workload", str(v), workloads, path) for v in _as_list(value)]
            return name, frozenset(wanted)
        factor = FACTOR_BY_NAME.get(_canonical_factor(name))
        if factor is None:
            self.problem(path, _unknown("factor", name, (*FACTOR_BY_NAME, "workload")))
            return name, frozenset()
        named = dict(factors).get(factor.name, (factor.default,))
        levels = [self.level(factor, v, path, named) for v in _as_list(value)]
        for level in levels:
            if level not in named and not self.problems:
                self.problem(
                    path,
                    f"{factor.name} = {level} is not among the study's levels: {', '.join(named)}",
                    level,
                )
        return factor.name, frozenset(levels)


_TOP = ("name", "description", "workloads", "factors", "backings", "only", "exclude", "protocol")
_PROTOCOL = ("blocks", "seed", "size", "runtime", "ramp", "run_timeout")
_COMMON = ("runtime", "ramp", "size", "fill")
_PRESET: dict[str, str] = {
    "rw": r"read|write|randread|randwrite|readwrite|rw|randrw",
    "bs": r"[1-9][0-9]{0,6}[kKmM]?",
    "iodepth": r"[1-9][0-9]{0,3}",
    "fsync": r"[0-9]{1,6}",
    "rwmixread": r"[0-9]{1,2}|100",
    "distribution": r"random|(zipf|pareto|normal):[0-9.]{1,6}(:[0-9.]{1,6})?",
    "primary": r"iops|bandwidth",
}


def _with_seed(study: Study) -> Study:
    """A study without a seed gets one from its content, so that the same file repeats itself."""
    from dataclasses import replace

    if study.protocol.seed:
        return study
    seed = int(study.id, 16) % (2**31 - 1) + 1
    return replace(study, protocol=replace(study.protocol, seed=seed))


def _canonical_factor(name: str) -> str:
    """QEMU spells creation options with ``_`` and run-time ones with ``-``; take either."""
    flat = name.replace("-", "_").lower()
    return next((known for known in FACTOR_BY_NAME if known.replace("-", "_") == flat), name)


def render_level_bytes(count: int) -> str:
    """Bytes as QEMU takes them: the largest unit that divides (``64K``, ``1M``, ``512``)."""
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _unknown(what: str, value: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(value, names, 1, 0.5)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {value[:70]!r}{guess} (known: {', '.join(names)})"
