"""``python -m support.litmus.observe_mounted FILE DISK FOLDER KIND OPTIONS`` does as ``observe``
for states that are a disk with a file system: the trees are those in a folder of it, mounted. It
ends with its starter, and its mounts with it.
"""

import sys
import tempfile
from pathlib import Path

from diskproof.backings.mounted_disk import Unmountable, start_mounted
from support.litmus.observe import observe, trees_in


def main(out: str, disk: str, folder: str, kind: str, options: str) -> None:
    """A state that the kernel does not mount, or without the folder, is a tree of its own."""
    point = Path(tempfile.mkdtemp(prefix="litmus-", dir=Path.cwd()))

    def mounted_trees(state: Path) -> list[str]:
        try:
            with start_mounted(state / disk, kind, options, point):
                return trees_in(point / folder)
        except (Unmountable, FileNotFoundError) as error:
            return [f"unusable: {error}"]

    observe(Path(out), mounted_trees)
    point.rmdir()


if __name__ == "__main__":
    main(*sys.argv[1:])
