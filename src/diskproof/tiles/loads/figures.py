"""What steps say: lines of a name and a number; and where a guest finds percentiles."""

import math
import re
from collections.abc import Mapping

from diskproof.errors import RunFailure

MAX_FIGURES = 100
_LINE = re.compile(rb"([a-z][a-z0-9_]{0,63}) ([0-9]{1,15}(?:\.[0-9]{1,15})?)", re.ASCII)

# A shell function: of the numbers on its input how many, their mean and the 99th percentile by
# nearest rank, times a factor ($2), as figures; $1 is what they count.
LATENCIES = """latencies() {
    sort -n | awk -v what="$1" -v factor="$2" '
        { value[NR] = $1; sum += $1 }
        END {
            print what, NR
            if (!NR) exit
            rank = int((NR * 99 + 99) / 100)
            printf "latency_mean %.9f\\n", sum / NR * factor
            printf "latency_p99 %.9f\\n", value[rank] * factor
        }'
}
"""


def parse_figures(step: str, output: bytes, *names: str) -> Mapping[str, float]:
    """The figures of these names; each must be there once. Raises RunFailure ``workload``."""
    lines = output.splitlines()
    found: dict[str, float] = {}
    for line in lines[:MAX_FIGURES]:
        match = _LINE.fullmatch(line)
        name = match[1].decode() if match else ""
        if match and name in names:
            if name in found:
                raise RunFailure("workload", f"{step} says {name} twice")
            found[name] = float(match[2])
    missing = [name for name in names if name not in found]
    if missing:
        why = output[:200].decode("utf-8", "replace")
        raise RunFailure("workload", f"{step} does not say {', '.join(missing)}", why)
    return found


def require_match(step: str, pattern: str, output: bytes) -> float:
    """The number that the one group of a pattern finds. Raises RunFailure ``workload``."""
    found = re.search(pattern.encode(), output, re.ASCII | re.MULTILINE)
    value = float(found[1]) if found else math.nan
    if not math.isfinite(value):
        why = output[-500:].decode("utf-8", "replace")
        raise RunFailure("workload", f"{step} does not say what it reached", why)
    return value


def find_step(names: Mapping[str, object], ending: str) -> str:
    """The step whose name ends so: there is one in each workload of its kind. Raises KeyError."""
    for name in names:
        if name.endswith(f".{ending}"):
            return name
    raise KeyError(ending)
