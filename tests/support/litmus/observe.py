"""``python -m support.litmus.observe FILE`` is a check that stays and keeps every state: it appends
each tree that it sees to a file, by the number of operations that had returned.

What is found of a state counts for all that are equal in what was read of it (docs/crash-model.md):
its answer says which tree it was, so that two that should be the same and are not are noticed.
"""

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

from support.litmus.tree_text import tree_text


def observe(out: Path, tree_of: Callable[[Path], str]) -> None:
    """Answers each line by ``1`` and a number that is the tree's."""
    seen: set[tuple[int, str]] = set()
    with out.open("ab", buffering=0) as stream:
        for line in sys.stdin:
            state, _, acks = line.rstrip("\n").partition("\t")
            found = Path(acks).read_bytes().count(b"\n"), tree_of(Path(state))
            if found not in seen:
                seen.add(found)
                stream.write(json.dumps(found).encode() + b"\n")
            sys.stdout.write(f"1 {zlib.crc32(found[1].encode())}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    observe(Path(sys.argv[1]), tree_text)
