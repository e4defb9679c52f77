"""``python -m support.litmus.observe FILE [KIND OPTIONS]`` is a check that stays and keeps every
state: it appends each tree that it sees to a file, by the number of operations that had returned.
With a file system the state is a disk with one. It ends with its starter, and its mounts with it.
"""

import json
import sys
import tempfile
from pathlib import Path

from diskproof.backings.mounted_disk import Unmountable, start_mounted
from diskproof.crash.real_fs import DISK, FOLDER
from support.litmus.tree_text import tree_text


def main(out: str, *on: str) -> None:
    """Answers each line by ``0``: every state keeps."""
    seen: set[tuple[int, str]] = set()
    point = Path(tempfile.mkdtemp(prefix="litmus-", dir=Path.cwd()))
    with Path(out).open("ab", buffering=0) as stream:
        for line in sys.stdin:
            state, _, acks = line.rstrip("\n").partition("\t")
            returned = Path(acks).read_bytes().count(b"\n")
            found = (
                returned,
                _mounted_tree(Path(state) / DISK, on, point) if on else tree_text(Path(state)),
            )
            if found not in seen:
                seen.add(found)
                stream.write(json.dumps(found).encode() + b"\n")
            sys.stdout.write("0\n")
            sys.stdout.flush()
    point.rmdir()


def _mounted_tree(disk: Path, on: tuple[str, ...], point: Path) -> str:
    kind, options = on
    try:
        with start_mounted(disk, kind, options, point):
            return tree_text(point / FOLDER)
    except (Unmountable, FileNotFoundError) as error:
        return f"unusable: {error}"


if __name__ == "__main__":
    main(*sys.argv[1:])
