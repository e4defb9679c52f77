"""Every tree that a crash leaves of small programs, on real file systems and by rules.

    PYTHONPATH=src:tests python benchmarks/litmus.py run --on xfs --out xfs.jsonl [--of SET...]
    PYTHONPATH=src:tests python benchmarks/litmus.py run --on posix --out posix.jsonl
    PYTHONPATH=src:tests python benchmarks/litmus.py compare xfs.jsonl... posix.jsonl

``run`` takes litmus programs (tests/support/litmus: idioms of applications, all 312 distinct ones
of one operation within the bounds of the B3 paper, a sample of two), and appends a line for each:
its operations and, by how many had returned, the distinct trees. On a file system, with mount
options as ``crash --on`` takes them, each state of its disk is mounted; on ``posix`` the states are
a folder's, by the rules of docs/crash-model.md or of ``--profile``. ``--in-guest`` does it all in
our guest with storage, by whose kernel there is f2fs, too. What a file has is not run again.
``compare`` tells the real trees, of all files together, that the rules do not have, and exits with
1 if there is one; and how many of the rules' trees were seen, and of their classes
(tests/support/litmus/classes): of a program, and by how many operations had returned.

Requires root, /dev/fuse, loop devices, the programs that make file systems, and the native ones.
"""

import argparse
import json
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from diskproof.crash.real_fs import RealFs, read_real_fs, require_root
from diskproof.process.scratch import start_scratch_dir
from support.litmus.bounded import of_one, of_two
from support.litmus.classes import classes
from support.litmus.idioms import idioms
from support.litmus.in_guest import start_lab
from support.litmus.operations import Litmus
from support.litmus.others import others
from support.litmus.published import published
from support.litmus.reach import Budget, Reached, reach
from support.litmus.writeback import WRITEBACKS

SETS = ("idioms", "others", "published", "one", "two")
TWO = 1000
"""Programs of two operations in the sample, from which ``--take`` takes fewer."""
POSIX = "posix"
RATE = ("checked", "seconds")
See = Callable[[Litmus], Reached]


@dataclass(frozen=True)
class Row:
    """A line of a file: a program, where it ran, and what a crash leaves."""

    program: Litmus
    on: str
    profile: str
    kernel: str
    trees: Mapping[str, Sequence[str]]
    counts: Mapping[str, Any]

    @property
    def is_complete(self) -> bool:
        """Every state that there can be was seen."""
        return all(each["complete"] for each in self.counts.values())

    @property
    def sets(self) -> dict[int, frozenset[str]]:
        return {int(returned): frozenset(texts) for returned, texts in self.trees.items()}

    @property
    def place(self) -> str:
        return self.profile or self.on


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run, compare = verbs.add_parser("run"), verbs.add_parser("compare")
    run.add_argument("--on", required=True, help="KIND[,OPTIONS], or posix")
    run.add_argument("--in-guest", action="store_true", help="of our guest's kernel, such as f2fs")
    run.add_argument(
        "--profile",
        default="",
        help="a file system whose rules the explorer has (fault power-NAME), with --on posix",
    )
    run.add_argument("--of", nargs="+", choices=SETS, default=list(SETS))
    run.add_argument("--take", type=int, help="so many of each set of more, a seeded sample")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--only", help="programs whose names hold this")
    run.add_argument("--states", type=int, help="states at most (of each disk 400, else 20,000)")
    run.add_argument("--seconds", type=float, default=600.0, help="for each program")
    run.add_argument("--threads", type=int, help="of the explorer (on btrfs 1)")
    run.add_argument(
        "--part",
        type=read_part,
        default=(1, 1),
        help="N/M: of the programs each M-th, from the N-th; parts may share a file",
    )
    run.add_argument("--writeback", nargs="+", choices=WRITEBACKS, default=list(WRITEBACKS))
    run.add_argument("--out", type=Path, required=True)
    compare.add_argument("real", type=Path, nargs="+")
    compare.add_argument("rules", type=Path)
    given = parser.parse_args()
    if given.verb == "run":
        if given.in_guest and (given.on == POSIX or given.profile):
            parser.error("--in-guest: a file system is seen there, no rules are tried")
        return run_all(given)
    real = [row for path in given.real for row in read_rows(path)]
    return compare_all(merge(real), read_rows(given.rules))


def read_part(text: str) -> tuple[int, int]:
    first, _, step = text.partition("/")
    if not (first.isdecimal() and step.isdecimal() and 1 <= int(first) <= int(step)):
        raise argparse.ArgumentTypeError(f"{text}: it is N/M, such as 2/3, the second of three")
    return int(first), int(step)


def choose(sets: Sequence[str], take: int | None, seed: int, only: str | None) -> Iterator[Litmus]:
    """The programs that are asked for."""
    for name in sets:
        match name:
            case "idioms":
                some = idioms()
            case "others":
                some = others()
            case "published":
                some = published()
            case "one":
                some = of_one()
            case _:
                some = of_two(TWO, seed)
        if only is not None:
            some = tuple(each for each in some if only in each.name)
        if take is not None and take < len(some):
            some = tuple(random.Random(seed).sample(some, take))
        yield from some


def run_all(given: argparse.Namespace) -> int:
    states = given.states or (20000 if given.on == POSIX else 400)
    budget = Budget(states, given.seconds, tuple(given.writeback), given.threads)
    done = read_rows(given.out) if given.out.exists() else []
    have = {(row.program.to_json(), row.place) for row in done}
    first, step = given.part
    programs = [*choose(given.of, given.take, given.seed, given.only)][first - 1 :: step]
    left = [each for each in programs if (each.to_json(), given.profile or given.on) not in have]
    print(f"{len(programs)} programs, {len(programs) - len(left)} of them in {given.out}")
    with ExitStack() as stack:
        if given.in_guest:
            see, kernel = start_there(stack, given.on, budget)
        else:
            see, kernel = start_here(given.on, given.profile, budget), platform.release()
        for number, program in enumerate(left, 1):
            began = time.monotonic()
            found = see(program)
            trees = {str(returned): sorted(texts) for returned, texts in found.trees.items()}
            row = Row(program, given.on, given.profile, kernel, trees, found.counts)
            with given.out.open("ab", buffering=0) as stream:
                stream.write(json.dumps(asdict(row), sort_keys=True).encode() + b"\n")
            tell_row(f"{number}/{len(left)}", row, time.monotonic() - began)
    return 0


def start_here(where: str, profile: str, budget: Budget) -> See:
    on = None if where == POSIX else read_real_fs(where)
    if on:
        require_root(on)

    def see(program: Litmus) -> Reached:
        with start_scratch_dir(large=True) as room:
            return reach(program, on, room / "run", budget, profile)

    return see


def start_there(stack: ExitStack, where: str, budget: Budget) -> tuple[See, str]:
    """In a guest that runs until the stack is left; and its kernel's release."""
    kind, _, options = where.partition(",")
    room = stack.enter_context(start_scratch_dir(large=True))
    see, kernel = stack.enter_context(start_lab(room))
    return lambda program: see(program, RealFs(kind, options), budget), kernel


def tell_row(number: str, row: Row, took: float) -> None:
    checked, seconds = (sum(each[key] for each in row.counts.values()) for key in RATE)
    print(
        f"{number} {row.program.name}: {sum(map(len, row.trees.values()))} trees, "
        f"{checked} states, {checked / seconds:.1f}/s, {took:.1f} s"
        f"{'' if row.is_complete else ', a sample'}",
        flush=True,
    )


def read_rows(path: Path) -> list[Row]:
    """The lines of a file; a last one that was not written to its end is none."""
    rows = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            values = json.loads(line)
            told = values.pop("program")
            program = Litmus(told["name"], tuple(told["operations"]), tuple(told["setup"]))
            rows.append(Row(program, **values))
    return rows


def merge(rows: Sequence[Row]) -> list[Row]:
    """What was seen of the same program in the same place is one."""
    merged: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = row.program.to_json(), row.place
        found = merged.get(key, row)
        moments = found.trees.keys() | row.trees.keys()
        trees = {n: sorted({*found.trees.get(n, ()), *row.trees.get(n, ())}) for n in moments}
        merged[key] = replace(found, trees=trees)
    return list(merged.values())


def compare_all(real: Sequence[Row], rules: Sequence[Row]) -> int:
    """Each row with each of the rules' of the same program."""
    totals: dict[tuple[str, str], Counter[str]] = {}
    by_program: dict[str, list[Row]] = {}
    for row in rules:
        by_program.setdefault(row.program.to_json(), []).append(row)
    for row in real:
        for allowed in by_program.get(row.program.to_json(), ()):
            total = totals.setdefault((row.on, allowed.place), Counter())
            total.update(compare_one(row, allowed))
    for (on, place), total in sorted(totals.items()):
        print(
            f"{on}: {total['programs']} programs, {total['beyond']} trees that {place} does not "
            f"have; of its trees {share(total, 'trees')} seen, of its classes "
            f"{share(total, 'classes')}, at their moments {share(total, 'moments')}"
        )
    return 1 if any(total["beyond"] for total in totals.values()) else 0


def compare_one(row: Row, allowed: Row) -> Counter[str]:
    """What of the rules' was seen, and how much there is."""
    found, possible = pairs(row), pairs(allowed)
    beyond = sorted(found - possible)
    if beyond:
        tell(row, allowed, beyond)
    counts = Counter(programs=1, beyond=len(beyond))
    moments = [classes(each.sets, each.program) for each in (row, allowed)]
    kinds = [frozenset(kind for _, kind in each) for each in moments]
    for name, (seen, all_of) in {
        "trees": (found, possible),
        "classes": kinds,
        "moments": moments,
    }.items():
        counts.update({f"{name} seen": len(seen & all_of), name: len(all_of)})
    return counts


def share(total: Counter[str], name: str) -> str:
    seen, possible = total[f"{name} seen"], total[name]
    return f"{seen} of {possible} ({100 * seen / possible if possible else 0:.0f} %)"


def pairs(row: Row) -> frozenset[tuple[int, str]]:
    """Each tree with how many operations had returned."""
    return frozenset((returned, text) for returned, texts in row.sets.items() for text in texts)


def tell(row: Row, allowed: Row, beyond: Sequence[tuple[int, str]]) -> None:
    """A program with the trees outside the rules, each once, at the earliest moment."""
    complete = "" if allowed.is_complete else " (of which only a sample was built)"
    print(f"\n{row.on}: {row.program.name}: not in {allowed.place}{complete}")
    for operation in row.program.setup:
        print(f"    before: {json.dumps(operation)}")
    for number, operation in enumerate(row.program.operations, 1):
        print(f"    {number}: {json.dumps(operation)}")
    earliest: dict[str, int] = {}
    for returned, text in beyond:
        earliest.setdefault(text, returned)
    for text, returned in earliest.items():
        print(f"  after {returned} had returned:")
        print("".join(f"      {line}\n" for line in text.splitlines() or ["(empty)"]), end="")


if __name__ == "__main__":
    sys.exit(main())
