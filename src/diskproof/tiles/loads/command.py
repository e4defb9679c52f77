"""A command of the user's own: its exit status says whether it went well, and its last line of
output may be a JSON object of figures."""

import json
import math
from collections.abc import Mapping

from diskproof.errors import RunFailure
from diskproof.records import Metric
from diskproof.study.tiles import TileWork
from diskproof.tiles.steps import TileContext, TileStep

MAX_FIGURES = 100
MAX_LINE = 64 << 10
_UNITS = {"throughput": ("1/s", True), "latency_p99": ("s", False)}


class CommandLoad:
    """The load ``command``. Figures by the names of ours (``throughput``, ``latency_p99``) are
    judged as theirs; without a throughput one command is the unit of work."""

    def steps(self, work: TileWork, context: TileContext) -> tuple[TileStep, ...]:
        run = TileStep(
            f"{work.name}.run", work.source, "load", work.command, (), work.name, work.timeout
        )
        if not work.check:
            return (run,)
        check = TileStep(
            f"{work.name}.check", work.source, "check", work.check, (), work.name, work.timeout
        )
        return run, check

    def read(
        self, outputs: Mapping[str, bytes], seconds: Mapping[str, float]
    ) -> tuple[Metric, ...]:
        (name,) = [step for step in seconds if step.endswith(".run")]
        took = seconds[name]
        figures = {"throughput": 1 / max(took, 1e-9), **_read_figures(name, outputs[name])}
        metrics = [Metric("seconds", "s", took, False, primary=True)]
        for key, value in figures.items():
            unit, higher = _UNITS.get(key, ("1", True))
            metrics.append(Metric(key, unit, value, higher))
        return tuple(metrics)


def _read_figures(step: str, output: bytes) -> dict[str, float]:
    """The JSON object on the last line, if that is one. Raises RunFailure for one with anything
    but finite numbers in it."""
    last = output.rstrip().rpartition(b"\n")[2][:MAX_LINE]
    if not last.startswith(b"{"):
        return {}
    try:
        content = json.loads(last)
        figures = {str(key)[:64]: float(value) for key, value in content.items()}
        if len(figures) > MAX_FIGURES or not all(map(math.isfinite, figures.values())):
            raise ValueError(f"at most {MAX_FIGURES} finite numbers are taken")
        if figures.get("throughput", 1.0) <= 0 or "seconds" in figures:
            raise ValueError("a throughput is above 0, and seconds are measured")
    except (ValueError, TypeError, RecursionError) as error:
        what = f"{step} ends with figures that cannot be used"
        raise RunFailure("workload", what, f"{error}: {last[:200]!r}") from None
    return figures


LOAD = CommandLoad()
