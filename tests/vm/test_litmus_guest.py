"""A litmus program on f2fs of our guest's kernel, held against the rules of f2fs; and with it our
recorder and explorer on a kernel that is older than this host's.

Requires root, /dev/fuse, qemu-system-x86_64 and the guest with storage.
"""

from pathlib import Path

from diskproof.crash.real_fs import RealFs
from support.litmus.idioms import idioms
from support.litmus.in_guest import start_lab
from support.litmus.reach import Budget, reach
from support.recording import needs_fuse

pytestmark = needs_fuse
PROGRAM = "create, fsync of file and directory"


def test_what_f2fs_leaves_in_our_guest_is_within_its_rules(run_dir: Path, tmp_path: Path) -> None:
    program = next(each for each in idioms() if each.name == PROGRAM)
    with start_lab(run_dir) as (see, _):
        real = see(program, RealFs("f2fs", ""), Budget(8, 300.0, ("end",)))
    rules = reach(program, None, tmp_path / "rules", Budget(), "f2fs")
    beyond = {
        returned: texts - rules.trees.get(returned, frozenset())
        for returned, texts in real.trees.items()
    }
    assert {returned: texts for returned, texts in beyond.items() if texts} == {}
    assert len(real.trees) > 1
    (whole,) = real.trees[len(program.operations)]
    assert "A/foo" in whole and "12288" in whole
