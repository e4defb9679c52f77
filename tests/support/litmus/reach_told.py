"""``python -m support.litmus.reach_told`` reads a program, a file system and a budget, as JSON, and
writes what ``reach`` finds."""

import json
import sys

from diskproof.crash.real_fs import RealFs
from diskproof.process.scratch import start_scratch_dir
from support.litmus.operations import Litmus
from support.litmus.reach import Budget, reach


def main() -> None:
    told = json.load(sys.stdin)
    program, on = Litmus(**told["program"]), RealFs(**told["on"])
    with start_scratch_dir(large=True) as room:
        found = reach(program, on, room / "run", Budget(**told["budget"]))
    trees = {returned: sorted(texts) for returned, texts in found.trees.items()}
    json.dump({"trees": trees, "counts": found.counts}, sys.stdout)


if __name__ == "__main__":
    main()
