"""Foreign test programs on recordfs; after each the log replays to the backing.

What they are is in docs/recordfs.md. A short form here; `make suites` runs them whole. Requires
root, /dev/fuse, the built diskproof-recordfs and what `make suites-tools` installs.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.recording import Recording, make_places, needs_fuse, open_folder, start_recording

BUILT = Path(__file__).resolve().parents[2] / "build/suites/bin"
WHOLE = bool(os.environ.get("DISKPROOF_SUITES"))
PATH = f"{BUILT}:{os.environ['PATH']}"

pytestmark = [
    needs_fuse,
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("fsx", path=PATH) is None or shutil.which("stress-ng") is None,
        reason="needs what make suites-tools installs",
    ),
]

FSX = """
flen = {length}
[opsize]
min = {align}
max = {largest}
align = {align}
[weights]
close_open = 1.0
invalidate = 1.0
truncate = 4.0
fsync = 1.0
fdatasync = 1.0
posix_fallocate = {fallocate}
punch_hole = 3.0
copy_file_range = 2.0
sendfile = 1.0
read = 4.0
write = 8.0
mapread = 4.0
mapwrite = 6.0
"""
# Each: the largest operation, its alignment. An aligned posix_fallocate may be empty, and fails.
FSX_KINDS = {"bytes": (65536, 1), "blocks": (65536, 4096), "small": (512, 1)}

PJDFSTEST = """
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
expected_failures = ["utimensat::y2038"]
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
DEVICES = re.compile(r"::block$|^mknod::.*::char$")
SHORT_PJDFSTEST = ["chmod", "chown", "ftruncate", "link", "open", "rename", "truncate", "utimensat"]

STRESSORS = {
    "content": "copy-file fallocate fpunch hdd iomix msync readahead revio seek sendfile sync-file",
    "names": "chdir dentry dir dirdeep dirmany filename link mknod open rename symlink touch",
    "attributes": "chmod chown fcntl flock getdent locka lockf lockofd utime xattr",
}
# The log is replayed in memory.
SIZES = {
    "copy-file": "bytes",
    "fallocate": "bytes",
    "hdd": "bytes",
    "iomix": "bytes",
    "msync": "bytes",
    "readahead": "bytes",
    "seek": "size",
    "sync-file": "bytes",
}
# It takes no smaller file, and copies 2 MiB at a time.
LEAST = {"copy-file": "128m"}
FEW = {"copy-file": "20"}
SHORT_STRESSORS = {"content": "fpunch", "names": "rename", "attributes": "xattr utime"}


@pytest.fixture(params=["direct", "page-cache"] if WHOLE else ["direct"])
def recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """A recording whose log is replayed and compared with the backing at its end."""
    options = () if request.param == "direct" else ("--page-cache",)
    with open_folder() as folder, start_recording(make_places(folder), *options) as recording:
        yield recording
        recording.finish()


def start(*argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program with its output, ended by now."""
    return subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "PATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=900,
        check=False,
    )


def run(*argv: str, folder: Path) -> None:
    """A program whose failure is the test's."""
    done = start(*argv, folder=folder)
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout[-4000:]}"


@pytest.mark.parametrize("kind", FSX_KINDS if WHOLE else ["bytes"])
def test_fsx(recording: Recording, tmp_path: Path, kind: str) -> None:
    largest, align = FSX_KINDS[kind]
    for seed in range(1, 4 if WHOLE else 2):
        config = tmp_path / "fsx.toml"
        config.write_text(
            FSX.format(length=262144, largest=largest, align=align, fallocate=float(align == 1))
        )
        count = "2000" if WHOLE else "300"
        argv = ["fsx", "-f", str(config), "-N", count, "-S", str(seed), "-P", str(tmp_path)]
        run(*argv, str(recording.mount / f"f{seed}"), folder=tmp_path)


def test_pjdfstest(recording: Recording, tmp_path: Path) -> None:
    config = tmp_path / "pjdfstest.toml"
    config.write_text(PJDFSTEST)
    argv = ["pjdfstest", "-c", str(config), "-p", str(recording.mount)]
    done = start(*argv, *([] if WHOLE else SHORT_PJDFSTEST), folder=tmp_path)
    told = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    failed = re.findall(r"^(\S+) +FAILED$", told, re.MULTILINE)
    # What is recorded can make no device nodes.
    assert [name for name in failed if not DEVICES.search(name)] == [], told[-4000:]
    (passed,) = re.findall(r"(\d+) passed", told)
    assert int(passed) > (300 if WHOLE else 150), told[-1000:]


@pytest.mark.parametrize("kind", STRESSORS)
def test_stress_ng(recording: Recording, kind: str) -> None:
    names = (STRESSORS if WHOLE else SHORT_STRESSORS)[kind]
    for name in names.split():
        argv = ["stress-ng", "--verify", "--temp-path", str(recording.mount), f"--{name}", "2"]
        argv += [f"--{name}-{SIZES[name]}", LEAST.get(name, "8m")] if name in SIZES else []
        count = FEW.get(name, "200") if WHOLE else "20"
        run(*argv, f"--{name}-ops", count, "-t", "20", folder=recording.mount)


@pytest.mark.skipif(not WHOLE, reason="make suites runs it")
def test_dbench(recording: Recording) -> None:
    for more in ([], ["-s", "-S"]):
        run("dbench", "-t", "2", "-D", str(recording.mount), *more, "4", folder=recording.mount)


@pytest.mark.skipif(not WHOLE, reason="make suites runs it")
@pytest.mark.parametrize("engine", ["psync", "libaio", "io_uring", "mmap", "posixaio"])
def test_fio_verifies(recording: Recording, engine: str) -> None:
    argv = ["fio", "--name=f", f"--ioengine={engine}", "--rw=randrw", "--bs=4k-64k", "--size=16m"]
    argv += ["--iodepth=8", "--verify=crc32c", "--fdatasync=16", "--verify_fatal=1"]
    argv += ["--direct=1", "--bsrange=4k-64k"] if engine in ("libaio", "io_uring") else []
    run(*argv, f"--directory={recording.mount}", folder=recording.mount)
