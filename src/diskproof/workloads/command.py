"""A command of the user's own: its time, and a figure that it prints."""

import json
import math
import re

from diskproof.drive import Drive, Execution
from diskproof.errors import HostError, RunFailure
from diskproof.records import Artefact, Check, Metric, WorkloadSpec
from diskproof.workloads import WorkloadResult

DISK = "{disk}"
MAX_LINE = 4096  # of what a pattern is looked for in
MAX_SECONDS = 7 * 86_400.0  # the run's own deadline comes first
_NOT_FOUND = (126, 127)
_KEPT = 1 << 20


class CommandWorkload:
    """The kind ``command``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure ``workload`` when the command fails or prints no figure."""
        argv = command_args(spec, drive)
        try:
            done = drive.execute(argv, timeout=MAX_SECONDS)
        except HostError as error:
            raise RunFailure("tool", error.what, error.why, error.hint) from error
        said = {"command.stdout": done.stdout, "command.stderr": done.stderr}
        evidence = tuple((name, text[:_KEPT]) for name, text in said.items())
        _require_success(argv[0], done, evidence)
        metrics = [_seconds(done.seconds, not _has_figure(spec))]
        if _has_figure(spec):
            try:
                value = find_figure(spec, done.stdout)
            except ValueError as error:
                what = "the command printed no figure"
                raise RunFailure("workload", what, str(error), evidence=evidence) from None
            higher = spec.option("better") == "higher"
            name, unit = spec.option("figure"), spec.option("unit")
            metrics.insert(0, Metric(name, unit, value, higher, primary=True))
        artefacts = tuple(Artefact(name, "text/plain", text) for name, text in evidence if text)
        check = Check("command", " ".join(argv)[:500], "ended with 0", "its exit status", True)
        return WorkloadResult(
            tuple(metrics), (check,), artefacts=artefacts, measured_seconds=done.seconds
        )


WORKLOAD = CommandWorkload()


def command_args(spec: WorkloadSpec, drive: Drive) -> list[str]:
    """The words of the study, with the disk's name in place of ``{disk}``."""
    words: list[str] = json.loads(spec.option("command"))
    if not any(DISK in word for word in words):
        return words
    name = drive.facts.disk
    return [word.replace(DISK, name) for word in words]


def find_figure(spec: WorkloadSpec, output: bytes) -> float:
    """What the study's ``pattern`` or ``json`` picks. Raises ValueError."""
    if pattern := spec.option("pattern"):
        text = _search(pattern, output)
    else:
        text = _pick(spec.option("json"), output)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text[:100]!r} is not a finite number")
    return value


def _search(pattern: str, output: bytes) -> str:
    """Group 1 of the first line that matches."""
    sought = re.compile(pattern)
    for line in output.splitlines():
        found = sought.search(line[:MAX_LINE].decode("utf-8", "replace"))
        if found and found[1] is not None:
            return found[1]
    raise ValueError(f"no line of its output matches {pattern!r}")


def _pick(path: str, output: bytes) -> str:
    """The value at a path such as ``jobs.0.read.iops`` in its output, which is JSON."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its output is not JSON: {error}") from None
    for key in path.split("."):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise ValueError(f"its output has no {path} (nothing at {key!r})")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{path} is no number")
    return str(value)


def _has_figure(spec: WorkloadSpec) -> bool:
    return bool(spec.option("pattern") or spec.option("json"))


def _seconds(seconds: float, primary: bool) -> Metric:
    return Metric("seconds", "s", seconds, higher_is_better=False, primary=primary)


def _require_success(
    program: str, done: Execution, evidence: tuple[tuple[str, bytes], ...]
) -> None:
    if done.returncode == 0:
        return
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-5:]
    why = "\n".join(line[:300] for line in said)
    if done.returncode in _NOT_FOUND:
        what = f"{program} could not be started"
    elif done.returncode < 0:
        what = f"{program} was killed by signal {-done.returncode}"
    else:
        what = f"{program} failed with status {done.returncode}"
    raise RunFailure("workload", what, why, evidence=evidence)
