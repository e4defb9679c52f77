"""States that a program judges a second: started for each state, and staying, on the same log.

Both judge the same states of a recording of SQLite commits, in turns; their verdicts must be the
same. Prints states a second of each round, medians and their ratio; exits with 1 when the verdicts
differ or the one that stays judges fewer than the bar.

Requires root, /dev/fuse and the built native programs.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskproof.crash.record import Recorded
from diskproof.crash.writers import load_writer
from diskproof.process.native import require_native
from diskproof.process.start import run
from support.written import make_cell, start_written

BAR = 500.0
"""States a second on two cores with little else to do."""
VERDICT = ("verdict", "lost", "state", "missing")


def judge(recorded: Recorded, check: Mapping[str, object], states: int) -> dict[str, Any]:
    """The summary of an exploration of at most so many states."""
    request = {
        "log": str(recorded.killed),
        "base": str(recorded.base),
        "fault": "power",
        "sector": 512,
        "seed": 1,
        "check": check,
        "budget": {"states": states, "seconds": 600, "minimise": 40},
    }
    argv = [str(require_native("diskproof-states")), "explore"]
    answer = run(argv, timeout=900, stdin=json.dumps(request).encode())
    summary: dict[str, Any] = json.loads(answer.text.splitlines()[-1])
    return summary


def each_time(check: Mapping[str, Any]) -> dict[str, Any]:
    """The same check, started for each state."""
    return {**check, "stays": False, "argv": [w for w in check["argv"] if w != "--stay"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--states", type=int, default=400)
    options = parser.parse_args()
    cell = make_cell("sqlite", "host")
    stays = dict(load_writer("sqlite").check(cell))
    kinds = {"started each time": each_time(stays), "stays": stays}
    paces: dict[str, list[float]] = {name: [] for name in kinds}
    verdicts = set()
    with tempfile.TemporaryDirectory() as folder, start_written(cell, Path(folder)) as recorded:
        for number in range(options.rounds):
            for name, check in kinds.items():
                found = judge(recorded, check, options.states)
                paces[name].append(found["states"]["checked"] / found["seconds"])
                verdicts.add(json.dumps([found[word] for word in VERDICT]))
                print(f"round {number + 1}  {name:18} {paces[name][-1]:8.1f} states/s", flush=True)
    medians = {name: statistics.median(values) for name, values in paces.items()}
    ratio = medians["stays"] / medians["started each time"]
    print(f"medians {medians}; ratio {ratio:.1f}; bar {BAR:.0f} states/s; verdicts {verdicts}")
    return 0 if len(verdicts) == 1 and medians["stays"] >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
