"""``python -m support.litmus.observe_mounted FILE DISK FOLDER KIND OPTIONS`` does as ``observe``
for states that are a disk with a file system: the tree is that of a folder in it, mounted. It ends
with its starter, and its mounts with it.
"""

import sys
import tempfile
from pathlib import Path

from diskproof.backings.mounted_disk import Unmountable, start_mounted
from support.litmus.observe import observe
from support.litmus.tree_text import tree_text


def main(out: str, disk: str, folder: str, kind: str, options: str) -> None:
    """A state that the kernel does not mount, or without the folder, is a tree of its own."""
    point = Path(tempfile.mkdtemp(prefix="litmus-", dir=Path.cwd()))

    def mounted_tree(state: Path) -> str:
        try:
            with start_mounted(state / disk, kind, options, point):
                return tree_text(point / folder)
        except (Unmountable, FileNotFoundError) as error:
            return f"unusable: {error}"

    observe(Path(out), mounted_tree)
    point.rmdir()


if __name__ == "__main__":
    main(*sys.argv[1:])
