"""``python -m support.litmus.observe FILE`` is a check that stays and keeps every state: it appends
the trees that it sees in a state, one for each folder there, to a file, by the number of operations
that had returned.

What is found of a state counts for all that are equal in what was read of it (docs/crash-model.md):
its answer says which tree it was, so that two that should be the same and are not are noticed.
"""

import json
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from support.litmus.tree_text import tree_text


def observe(out: Path, trees_of: Callable[[Path], Sequence[str]]) -> None:
    """Answers each line by ``1`` and a number that is the trees'."""
    seen: set[tuple[int, str]] = set()
    with out.open("ab", buffering=0) as stream:
        for line in sys.stdin:
            state, _, acks = line.rstrip("\n").partition("\t")
            said = Path(acks).read_text().split()
            returned, trees = int(said[-1]) if said else 0, trees_of(Path(state))
            new = {(returned, tree) for tree in trees} - seen
            seen |= new
            stream.write(b"".join(json.dumps(each).encode() + b"\n" for each in sorted(new)))
            sys.stdout.write(f"1 {zlib.crc32(repr(trees).encode())}\n")
            sys.stdout.flush()


def trees_in(folder: Path) -> list[str]:
    """One for each folder in it."""
    return [tree_text(each) for each in sorted(folder.iterdir()) if each.is_dir()]


if __name__ == "__main__":
    observe(Path(sys.argv[1]), trees_in)
