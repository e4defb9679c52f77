"""nocache: what a command brought into the page cache is gone when it ends, what was there stays.

Requires the built diskproof-nocache with its library, cachestat(2), seccomp user notification, a C
compiler. Residency is always the kernel's own count.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diskproof.process.start import find_tool, run
from support.patience import fewest
from support.residency import (
    PAGE,
    TAKEN,
    build_reader,
    cached,
    disk_folder,
    evict,
    lost,
    make_cold,
    nocache,
    nocache_args,
    succeed,
    why_unseen,
)

_MISSING = why_unseen()
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or not find_tool("mkfs.ext4"), reason="mounts, as root, with mkfs.ext4"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with disk_folder() as path:
        yield path


@pytest.fixture(scope="module")
def readers() -> Iterator[dict[str, Path]]:
    with disk_folder() as path:
        yield {
            "dynamic": build_reader(path, static=False),
            "static": build_reader(path, static=True),
        }


READS = {
    "cat": ["cat", "FILE"],
    "dd": ["dd", "if=FILE", "of=/dev/null", "bs=64k", "status=none"],
    "tar": ["sh", "-c", "tar cf - FILE 2> /dev/null | cat > /dev/null"],
    "stdio": ["wc", "-l", "FILE"],
    "redirected": ["sh", "-c", "cat < FILE > /dev/null"],
    "by children": ["sh", "-c", "(cat FILE & wait) | cat > /dev/null"],
    "threads": [sys.executable, "-c", "import threading; t = threading.Thread(target="
                "lambda: open('FILE', 'rb').read()); t.start(); t.join()"],
}  # fmt: skip


@pytest.mark.parametrize("how", READS)
def test_what_is_read_leaves(folder: Path, how: str) -> None:
    file = make_cold(folder / "file")
    argv = [word.replace("FILE", str(file)) for word in READS[how]]
    assert nocache(*argv).returncode == 0
    assert cached(file) == [0]


@pytest.mark.parametrize("how", READS)
def test_what_is_read_without_it_stays(folder: Path, how: str) -> None:
    """So the test above tells them apart."""
    file = make_cold(folder / "file")
    argv = [word.replace("FILE", str(file)) for word in READS[how]]

    def missing() -> int:
        evict(file)
        run(argv, timeout=30)
        return 2048 - cached(file)[0]

    assert fewest(TAKEN, missing, tries=10) <= TAKEN


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("how", ["mmap", "exit", "close_range", "raw", "close"])
def test_no_way_to_end_keeps_pages(
    folder: Path, readers: dict[str, Path], kind: str, how: str
) -> None:
    file = make_cold(folder / "file")
    assert nocache(readers[kind], how, file).returncode == 0
    assert cached(file) == [0]


def test_a_program_leaves_that_was_not_cached(folder: Path, readers: dict[str, Path]) -> None:
    program = folder / "program"
    run(["cp", str(readers["static"]), str(program)], timeout=30)
    evict(program)
    assert nocache(program, "exit", program).returncode == 0
    assert cached(program) == [0]


@pytest.mark.parametrize("how", ["exit", "mmap"])
def test_exactly_the_pages_of_others_stay(folder: Path, readers: dict[str, Path], how: str) -> None:
    file = make_cold(folder / "file")
    pages = [*range(0, 2048, 7), 1000, 1001, 2047]
    assert lost(file, pages, lambda: succeed(readers["dynamic"], how, file)) <= TAKEN


def test_a_file_that_was_cached_stays_whole(folder: Path) -> None:
    file = make_cold(folder / "file")
    assert lost(file, range(2048), lambda: succeed("cat", file)) <= TAKEN


def test_victims_are_left_alone(folder: Path) -> None:
    victim, file = make_cold(folder / "victim"), make_cold(folder / "file", 32 << 20)

    def copy() -> None:
        succeed("cp", file, folder / "copy")
        assert cached(file, folder / "copy") == [0, 0]

    assert lost(victim, range(2048), copy) <= TAKEN


@pytest.mark.parametrize("size", [1, PAGE + 1, 20 << 20])
def test_what_is_written_leaves_and_is_whole(folder: Path, size: int) -> None:
    file, copy = make_cold(folder / "file", size), folder / "copy"
    assert nocache("cp", file, copy).returncode == 0
    assert cached(file, copy) == [0, 0]
    assert copy.read_bytes() == file.read_bytes()


def test_a_file_written_over_leaves(folder: Path) -> None:
    file = folder / "file"
    file.write_bytes(os.urandom(8 << 20))
    assert nocache("sh", "-c", f"head -c 4194304 /dev/zero > {file}").returncode == 0
    assert cached(file) == [0]
    assert file.read_bytes() == bytes(4 << 20)


def test_renamed_and_small_files_leave(folder: Path) -> None:
    script = f"for i in $(seq 50); do echo $i > {folder}/t; mv {folder}/t {folder}/$i; done"
    assert nocache("sh", "-c", script).returncode == 0
    files = [folder / str(number) for number in range(1, 51)]
    assert cached(*files) == [0] * 50
    assert [file.read_text() for file in files] == [f"{number}\n" for number in range(1, 51)]


def test_writes_are_finished_in_the_background(folder: Path) -> None:
    """Without --wait the command's end is ours; what it wrote leaves soon after."""
    inherits = subprocess.Popen(
        nocache_args("sh", "-c", f"head -c 8388608 /dev/zero > {folder}/file", options=[]),
        stdout=subprocess.PIPE,
    )
    with inherits as child:
        assert child.communicate(timeout=30)[0] == b""
    # A flush waits for the same pages; then only the drop is left to be done.
    with (folder / "file").open("rb") as file:
        os.fsync(file.fileno())
    assert _eventually(lambda: cached(folder / "file") == [0])


def test_a_direct_reader_is_unharmed(folder: Path, readers: dict[str, Path]) -> None:
    file = make_cold(folder / "file")
    assert nocache(readers["dynamic"], "direct", file).returncode == 0
    assert cached(file) == [0]


def test_a_file_deleted_while_open_is_read_to_its_end(folder: Path) -> None:
    file = make_cold(folder / "file")
    done = nocache("sh", "-c", f"exec 3< {file}; rm {file}; cat <&3")
    assert (done.returncode, len(done.stdout)) == (0, 8 << 20)


def test_a_file_truncated_while_open(folder: Path) -> None:
    file = make_cold(folder / "file")
    done = nocache("sh", "-c", f"exec 3< {file}; head -c 65536 <&3; : > {file}; cat <&3")
    assert (done.returncode, len(done.stdout), file.stat().st_size) == (0, 65536, 0)


def test_a_sparse_file_of_a_terabyte(folder: Path) -> None:
    file = folder / "file"
    with file.open("wb") as output:
        output.truncate(1 << 40)
        output.seek(1 << 39)
        output.write(b"here")
    evict(file)
    script = f"dd if={file} bs=4 count=1 skip={1 << 37} status=none; ps -o rss= -p $PPID"
    done = nocache("sh", "-c", script)
    assert done.stdout.startswith(b"here")
    assert int(done.stdout[4:]) < 16 << 10  # KiB
    assert cached(file) == [0]


def test_pipes_devices_and_missing_files_are_what_they_were(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    script = f"(echo through > {folder}/pipe &) ; cat {folder}/pipe /dev/null; cat {folder}/none"
    done = nocache("sh", "-c", script)
    assert (done.returncode, done.stdout) == (1, b"through\n")
    assert "No such file" in done.error_text


@needs_root
def test_a_user_may_not_look_at_files_of_others(folder: Path) -> None:
    """Read they may, so it works and is told; cached pages of others are not touched."""
    folder.chmod(0o755)
    file = make_cold(folder / "file")
    file.chmod(0o644)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    program = folder / "program"
    native = Path(nocache_args()[0])
    program.write_bytes(native.read_bytes())
    program.chmod(0o755)
    done = run([*user, str(program), "--json", "--", "cat", str(file)], timeout=30)
    assert len(done.stdout) == 8 << 20
    assert json.loads(done.error_text)["unseen_files"] >= 1


@needs_mounts
def test_a_file_system_can_be_unmounted_inside(folder: Path) -> None:
    image, mount = folder / "image", folder / "mount"
    mount.mkdir()
    image.write_bytes(bytes(16 << 20))
    run(["mkfs.ext4", "-q", str(image)], timeout=30)
    script = (
        f"mount -o loop {image} {mount} && echo one > {mount}/file && cat {mount}/file"
        f" && umount {mount}"
    )
    done = nocache("sh", "-c", script)
    assert (done.returncode, done.stdout, done.error_text) == (0, b"one\n", "")


@needs_mounts
def test_files_of_an_overlay_leave(folder: Path) -> None:
    places = {name: folder / name for name in ("lower", "upper", "work", "mount")}
    for place in places.values():
        place.mkdir()
    file = make_cold(places["lower"] / "file")
    options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**places)
    run(["mount", "-t", "overlay", "-o", options, "overlay", str(places["mount"])], timeout=30)
    try:
        assert nocache("cat", places["mount"] / "file").returncode == 0
        assert cached(file) == [0]
    finally:
        run(["umount", str(places["mount"])], timeout=30)


@needs_root
def test_a_cgroup_as_the_strategy(folder: Path, readers: dict[str, Path]) -> None:
    file, victim = make_cold(folder / "file", 48 << 20), make_cold(folder / "victim")
    options = ["--strategy", "cgroup", "--memory", "16M", "--json"]

    def read() -> None:
        done = nocache(readers["static"], "mmap", file, options=options)
        if done.returncode == 3:
            pytest.skip(done.error_text)
        report = json.loads(done.error_text)
        assert report["removed"] is True
        assert report["peak_bytes"] <= 17 << 20
        assert cached(file) == [0]

    assert lost(victim, range(2048), read) <= TAKEN


def test_the_report_tells_what_was_done(folder: Path) -> None:
    file = make_cold(folder / "file")
    done = nocache("cat", file, options=["--json"])
    report = json.loads(done.error_text.splitlines()[-1])
    assert report["files"] >= 1
    assert report["brought_in_bytes"] >= 8 << 20
    assert report["left_bytes"] == 0
    assert report["peak_file_bytes"] <= report["peak_all_bytes"] <= 8 << 20
    assert nocache("cat", file, options=["-v"]).error_text.count("\n") == 0
    assert nocache("cat", file).error_text == ""


HOLDER = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(mapped[::4096])
print(flush=True)
sys.stdin.read()
"""


def test_pages_in_use_are_told_and_leave_later(folder: Path) -> None:
    file, ready, hold = make_cold(folder / "file"), folder / "ready", folder / "hold"
    os.mkfifo(ready)
    os.mkfifo(hold)
    script = f'{sys.executable} -c "$0" {file} < {hold} > {ready} 2> /dev/null & read x < {ready}'
    keeps_waiting = os.open(hold, os.O_RDWR | os.O_CLOEXEC)
    try:
        done = nocache("sh", "-c", script, HOLDER, options=["--json"])
    finally:
        os.close(keeps_waiting)
    report = json.loads(done.error_text.splitlines()[-1])
    [left] = [row for row in report["left"] if row["path"] == str(file)]
    assert (left["bytes"], left["why"]) == (8 << 20, "in use by a process")
    assert report["peak_file_bytes"] == 8 << 20, "this one was looked at while it was there"
    assert _eventually(lambda: cached(file) == [0]), "it leaves when its last user has ended"


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["true"], 0),
    ],
)
def test_exit_codes_pass_through(argv: list[str], code: int) -> None:
    done = nocache(*argv)
    assert done.returncode == code
    assert "panicked" not in done.error_text
    assert bool(done.error_text) == (code in (126, 127))


@pytest.mark.parametrize("argv", [[], ["--memory", "1T", "true"], ["--strategy", "x", "true"]])
def test_wrong_usage(argv: list[str]) -> None:
    done = run([nocache_args()[0], *argv], timeout=30, check=False)
    assert done.returncode == 2


def test_nested(folder: Path) -> None:
    file = make_cold(folder / "file")
    inner = nocache_args("cat", file)
    done = nocache(*inner)
    assert (done.returncode, len(done.stdout), cached(file)) == (0, 8 << 20, [0])


def test_a_termination_reaches_the_command(folder: Path) -> None:
    script = "trap 'echo ended; exit 5' TERM; echo ready; while :; do read x < /dev/zero; done"
    argv = nocache_args("bash", "-c", script.replace("read x < /dev/zero", "sleep 0.01"))
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.terminate()
        assert child.stdout.readline() == b"ended\n"
        assert child.wait(30) == 5


def test_a_killed_watcher_hangs_nobody(folder: Path) -> None:
    """The command's next open fails (ENOSYS): it goes on with that, or ends."""
    file = make_cold(folder / "file", PAGE)
    script = f"echo ready; read line; cat {file}; echo after"
    argv = nocache_args("bash", "-c", script)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        child.stdin.write(b"\n")
        child.stdin.close()
        assert child.stdout.read() == b"after\n"


def test_descriptor_limits_stay_as_they_are() -> None:
    limited = nocache_args("sh", "-c", "ulimit -n")
    done = run(["bash", "-c", 'ulimit -Sn 77; "$@"', "bash", *limited], timeout=30)
    assert done.text == "77\n"


def test_no_descriptor_is_too_high(folder: Path) -> None:
    file = make_cold(folder / "file")
    script = f"exec 1500< {file}; cat <&1500 > /dev/null; ls /"
    done = run(["bash", "-c", 'ulimit -n 2000; "$@"', "bash",
                *nocache_args("bash", "-c", script)], timeout=30)  # fmt: skip
    assert "tmp" in done.text.split()
    assert cached(file) == [0]


def test_many_files(folder: Path) -> None:
    for number in range(300):
        (folder / str(number)).write_bytes(os.urandom(PAGE))
    files = [folder / str(number) for number in range(300)]
    for file in files:
        evict(file)
    assert nocache("sh", "-c", f"cat {folder}/* > /dev/null").returncode == 0
    assert sum(cached(*files)) == 0


def _eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether it holds within the time; what is waited for tells nobody when it is done."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
