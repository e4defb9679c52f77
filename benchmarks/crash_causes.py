"""Causes of loss that were planted in programs, and how many of them ``diskproof crash`` names.

Programs with 1 to 10 independent causes, a right one beside them and flushes that nobody needs
are recorded for real and searched for a minute each. Prints for each what was planted and named,
whether the cures hold, and which flushes were called needless; exits with 1 when a bar is missed:
at least 90 % of the causes named and none twice, at least 95 % of the cures work, at least 90 % of
the needless flushes found and no needed one among them.

Requires root, /dev/fuse and the built native programs; PYTHONPATH names src and tests.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from support.planted_causes import KINDS, Score, judge

BARS = (0.90, 0.95, 0.90)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0, help="of each search")
    options.add_argument("--causes", type=int, nargs="*", default=list(range(1, 11)))
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    draw = random.Random(chosen.seed)
    scores: list[Score] = []
    for number in chosen.causes:
        kinds = draw.sample(sorted(KINDS), number)
        with tempfile.TemporaryDirectory(prefix="diskproof-causes-") as folder:
            Path(folder).chmod(0o755)
            found = judge(Path(folder), kinds, 1 + number // 3, chosen.seconds)
        scores.append(found)
        print(
            f"{number} causes: {found.named} named, {found.extra} too many; {found.cured} of "
            f"{found.proposed} cures work; {found.found_needless} of {found.needless} needless "
            f"flushes found, {found.wrong} needed ones among them",
            flush=True,
        )
        for text in found.texts:
            print(f"  {text}")
    whole = Score(
        *(sum(part) for part in zip(*(_numbers(s) for s in scores), strict=True)), texts=()
    )
    shares = whole.shares
    print("together: {:.0%} named, {:.0%} of the cures, {:.0%} of the needless".format(*shares))
    short = any(share < bar for share, bar in zip(shares, BARS, strict=True))
    return int(short or whole.extra > 0 or whole.wrong > 0)


def _numbers(score: Score) -> tuple[int, ...]:
    return (
        *(score.planted, score.named, score.extra, score.proposed, score.cured),
        *(score.needless, score.found_needless, score.wrong),
    )


if __name__ == "__main__":
    sys.exit(main())
