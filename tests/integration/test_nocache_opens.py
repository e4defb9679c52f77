"""nocache: opens of the preloaded library, which tell the watcher and do not stop for it.

Requires what test_nocache.py requires. A program that opens some files first goes that way.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.process.start import run
from support.residency import TAKEN, cached, disk_folder, lost, make_cold, nocache, why_unseen

_MISSING = why_unseen()
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

START = """
import fcntl, mmap, os, socket, sys
path = sys.argv[1]
for _ in range(6):
    os.close(os.open("/etc/passwd", os.O_RDONLY))
assert os.readlink("/proc/self/fd/60").startswith("socket:"), "opens still stop"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with disk_folder() as path:
        yield path


def python(script: str, file: Path) -> str:
    """What a program says that ends well, under nocache."""
    done = nocache(sys.executable, "-c", START + script, file)
    assert (done.returncode, done.error_text) == (0, "")
    return done.text


READS = {
    "read": "with open(path, 'rb') as file: file.read()",
    "mapped": "m = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ); sum(m[::4096])",
    "kept open": "os.read(os.open(path, os.O_RDONLY), 1 << 30); os._exit(0)",
    "read and write": "os.read(os.open(path, os.O_RDWR), 1 << 30)",
    "in a thread": "import threading; t = threading.Thread(target=lambda: open(path, 'rb').read());"
    "t.start(); t.join()",
    "by a child": "child = os.fork();"
    "child or (os.read(os.open(path, os.O_RDONLY), 1 << 30), os._exit(0)); os.waitpid(child, 0)",
    "descriptors closed": "os.closerange(3, 1000); os.read(os.open(path, os.O_RDONLY), 1 << 30)",
}


@pytest.mark.parametrize("how", READS)
def test_what_is_read_leaves(folder: Path, how: str) -> None:
    file = make_cold(folder / "file")
    python(READS[how], file)
    assert cached(file) == [0]


@pytest.mark.parametrize("pages", [range(0, 2048, 7), range(2048)], ids=["some", "all"])
@pytest.mark.parametrize("how", READS)
def test_pages_of_others_stay(folder: Path, how: str, pages: range) -> None:
    file = make_cold(folder / "file")
    assert lost(file, pages, lambda: python(READS[how], file)) <= TAKEN


WRITES = {
    "new": "os.write(os.open(path + 'n', os.O_WRONLY | os.O_CREAT | os.O_EXCL), b'new' * 4096)",
    "truncated": "os.write(os.open(path, os.O_WRONLY | os.O_TRUNC), b'new' * 4096)",
    "in place": "os.write(os.open(path, os.O_WRONLY), b'new' * 4096)",
    "renamed": "os.write(os.open(path + 'n', os.O_WRONLY | os.O_CREAT), b'new' * 4096);"
    "os.rename(path + 'n', path)",
}


@pytest.mark.parametrize("how", WRITES)
def test_what_is_written_leaves_and_is_whole(folder: Path, how: str) -> None:
    file = make_cold(folder / "file")
    python(WRITES[how], file)
    written = folder / ("filen" if how == "new" else "file")
    assert cached(written) == [0]
    assert written.read_bytes()[:12288] == b"new" * 4096


def test_many_files_are_all_told(folder: Path) -> None:
    """More than the socket holds while the watcher is not looking: the rest waits for it."""
    script = "for n in range(1500): os.write(os.open(f'{path}{n}', os.O_CREAT | os.O_RDWR), b'x')"
    python(
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n" + script,
        folder / "f",
    )
    assert sum(cached(*(folder / f"f{number}" for number in range(1500)))) == 0


def test_locks_are_those_of_the_program(folder: Path) -> None:
    script = """
for _ in range(200):
    first, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    fcntl.flock(first, fcntl.LOCK_EX)
    os.close(first)
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(second)
"""
    python(script, make_cold(folder / "file", 4096))


def test_a_program_just_written_can_be_run(folder: Path) -> None:
    script = """
import shutil, subprocess
for _ in range(20):
    shutil.copy("/bin/true", path)
    subprocess.run([path], check=True)
    os.remove(path)
"""
    python(script, folder / "program")


def test_numbers_of_descriptors_are_what_they_were(folder: Path) -> None:
    script = "print([os.open(path, os.O_RDONLY) for _ in range(3)])"
    file = make_cold(folder / "file", 4096)
    plain = run([sys.executable, "-c", "import os, sys; path = sys.argv[1];" + script, str(file)],
                timeout=30)  # fmt: skip
    assert python(script, file) == plain.text


def test_a_stranger_under_the_number_hears_nothing(folder: Path) -> None:
    script = """
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.dup2(there.fileno(), 60)
os.read(os.open(path, os.O_RDONLY), 1 << 30)
here.setblocking(False)
try:
    print(here.recv(100))
except BlockingIOError:
    print("nothing")
"""
    file = make_cold(folder / "file")
    assert python(script, file) == "nothing\n"
    assert cached(file) == [0]


def test_errors_and_links_are_the_kernels(folder: Path) -> None:
    script = """
import errno
def told(*words):
    try:
        os.open(*words)
    except OSError as error:
        return errno.errorcode[error.errno]
os.symlink(path, path + "l")
print(told(path + "x", os.O_RDONLY), told(path, os.O_CREAT | os.O_EXCL), told(path + "/x", 0),
      told(path + "l", os.O_NOFOLLOW), told(os.path.dirname(path), os.O_WRONLY), told("", 0))
"""
    file = make_cold(folder / "file", 4096)
    assert python(script, file).split() == [
        "ENOENT",
        "EEXIST",
        "ENOTDIR",
        "ELOOP",
        "EISDIR",
        "ENOENT",
    ]


def test_what_is_left_running_is_answered(folder: Path) -> None:
    """It calls all the time, also in the moments between the command's end and ours."""
    script = """
if os.fork() == 0:
    for _ in range(2000):
        os.rename(path, path + "2")
        os.rename(path + "2", path)
    os._exit(0)
"""
    for _ in range(3):
        python(script, make_cold(folder / "file", 4096))
