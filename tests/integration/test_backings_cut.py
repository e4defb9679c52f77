"""A study that is killed or interrupted at any step of making or removing a backing leaves nothing.

Steps are what Python tells its audit hooks: every program started, every file and folder made,
changed or removed. Requires root and mkfs.ext4.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from diskproof.host.janitor import sweep
from diskproof.process.start import run
from support.forked import Forked
from support.patience import await_true

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount"), pytest.mark.long]
MIB = 1 << 20

CUT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from integration.test_backings import backing, folder
from diskproof.backings import start_place
from diskproof.backings.consent import give_consent
from diskproof.backings.place import start_run_dir
from diskproof.process.run_user import require_run_user

STEPS = {"subprocess.Popen", "os.mkdir", "os.chmod", "os.chown", "os.truncate", "os.remove",
         "os.rmdir", "os.rename", "tempfile.mkdtemp", "tempfile.mkstemp", "fcntl.flock",
         "shutil.rmtree"}
here, kind, how, last = Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
count = 0

def cut(event, arguments):
    global count
    if event in STEPS:
        count += 1
        if count == last:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt

made = {
    "filesystem": lambda: backing("filesystem", folder(here), fs="ext2", size=str(16 << 20)),
    "tmpfs": lambda: backing("tmpfs", folder(here), size=str(16 << 20)),
}[kind]()
require_run_user()  # what it removes of dead ones is not the same every time
sys.addaudithook(cut)
try:
    with start_place(made, give_consent([made])) as place, start_run_dir(place) as room:
        (room / "disk").write_bytes(bytes(4096))
except KeyboardInterrupt:
    pass
last = 0
print(count)
"""


def play(folder: Path, kind: str, how: str, last: int) -> subprocess.CompletedProcess[bytes]:
    tests = Path(__file__).parent.parent
    argv = [sys.executable, "-c", CUT, str(tests), str(folder), kind, how, str(last)]
    ends = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked(argv, start_new_session=True, **ends) as child:
        out, err = child.communicate(timeout=120)
    return subprocess.CompletedProcess(argv, child.returncode, out, err)


def left_below(folder: Path) -> list[str]:
    """What the kernel still has of a folder, and what lies in it."""
    argv = ["losetup", "--noheadings", "--output", "BACK-FILE"]
    loops = [line for line in run(argv, timeout=30).text.splitlines() if str(folder) in line]
    mounts = Path("/proc/1/mountinfo").read_text().splitlines()
    return [
        *loops,
        *(line for line in mounts if str(folder) in line),
        *(str(path) for path in folder.iterdir()),
    ]


@pytest.mark.parametrize(
    ("kind", "how", "stride"),
    [("filesystem", "kill", 1), ("filesystem", "interrupt", 3), ("tmpfs", "kill", 4)],
)
def test_nothing_is_left_wherever_it_is_cut(
    tmp_path: Path, kind: str, how: str, stride: int
) -> None:
    whole = play(tmp_path, kind, how, 0)
    assert whole.returncode == 0, whole.stderr.decode()
    steps = int(whole.stdout)
    assert steps > 5
    await_true(lambda: left_below(tmp_path) == [])  # a test beside may look at a loop device
    for last in range(1, steps + 1, stride):
        done = play(tmp_path, kind, how, last)
        # On a busy host something is asked once more or less: then it ended before the cut.
        ended = how == "kill" and done.returncode == 0 and int(done.stdout) < last
        wanted = -9 if how == "kill" and not ended else 0
        assert done.returncode == wanted, (last, done.stderr.decode())
        # An interrupt in the middle of tidying up may leave a folder to the next study, too.
        await_true(
            lambda: {Path(line).name[:14] for line in left_below(tmp_path)} <= {"diskproof-run-"}
        )
        assert [swept.kept for swept in sweep([tmp_path]) if swept.kept] == []
        await_true(lambda: left_below(tmp_path) == [], told=(last, done.stderr.decode()))
