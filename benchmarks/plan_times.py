"""What a plan says of its time against the clock, over 20 different studies (bar: 90 % in 25 %)."""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STUDIES = 20
WITHIN = 0.25
LOADS = ("sync-write-4k", "rand-read-4k-d32", "rand-write-4k-d32", "seq-read", "seq-write")
CACHES = ("none", "writeback", "writethrough", "directsync", "unsafe")


def write_study(path: Path, dice: random.Random) -> None:
    """One of few cells and short runs: what is not the load weighs most there."""
    frontends = dice.choice((["host"], ["daemon"], ["host", "daemon"]))
    path.write_text(
        "\n".join(
            (
                f"workloads = {json.dumps(dice.sample(LOADS, dice.randint(1, 2)))}",
                "[factors]",
                f"frontend = {json.dumps(frontends)}",
                f"format = {json.dumps(dice.sample(('raw', 'qcow2'), dice.randint(1, 2)))}",
                f"cache = {json.dumps(dice.sample(CACHES, dice.randint(1, 2)))}",
                "[protocol]",
                f"blocks = {dice.randint(1, 3)}",
                f'size = "{dice.choice((32, 64, 128, 256))}MiB"',
                f'runtime = "{dice.randint(1, 3)}s"',
                'ramp = "0s"',
            )
        )
    )


def diskproof(folder: Path, *words: str) -> str:
    argv = [sys.executable, "-m", "diskproof", *words]
    done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    dice, errors = random.Random(20261122), []
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES
    with tempfile.TemporaryDirectory(prefix="diskproof-times-", dir="/var/tmp") as name:
        folder = Path(name)
        for number in range(studies):
            study = f"s{number}.toml"
            write_study(folder / study, dice)
            plan = json.loads(diskproof(folder, "plan", study, "--json"))
            began = time.monotonic()
            diskproof(folder, "run", study, "--quiet", "--wait")
            took = time.monotonic() - began
            errors.append(plan["estimated_seconds"] / took - 1)
            print(
                f"{study:9} {plan['runs']:3} runs  plan {plan['estimated_seconds']:6.1f} s  "
                f"took {took:6.1f} s  {errors[-1]:+.0%}  ({plan['estimated_from_runs']} known)",
                flush=True,
            )
    good = sum(abs(error) <= WITHIN for error in errors)
    print(f"{good} of {len(errors)} within {WITHIN:.0%}")


if __name__ == "__main__":
    main()
