"""doctor on this very host, as root and as nobody, with tools taken away, and interrupted.

Requires fio, qemu-img, qemu-storage-daemon and the native programs; mounts and other users need
root, another user needs a Python that it may run.
"""

import fcntl
import json
import os
import random
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import qemu.qmp

import diskproof
from diskproof.errors import HostError
from diskproof.host.doctor import examine
from diskproof.host.janitor import sweep
from diskproof.process.native import require_native
from diskproof.process.run_user import FORMER
from diskproof.process.start import CONFINE, find_tool, run, start_process
from diskproof.records import Finding

pytestmark = pytest.mark.long

SYSTEM_PYTHON = Path("/usr/bin/python3")
PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from diskproof.host.doctor import examine
print("imported", flush=True)
try:
    found = examine([Path(path) for path in sys.argv[1:]], refresh=False)
except KeyboardInterrupt:
    sys.exit(130)
print(json.dumps([dataclasses.asdict(finding) for finding in found]))
"""
FILE_SYSTEMS = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
with_tools = pytest.mark.skipif(
    not all(map(find_tool, ("fio", "qemu-img", "qemu-storage-daemon"))), reason="needs QEMU, fio"
)


def by_name(found: tuple[Finding, ...]) -> dict[str, Finding]:
    names = [finding.name for finding in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


def loop_files(folder: Path) -> list[str]:
    """What is behind loop devices, of files below a folder."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # detached meanwhile
            found.append(file.read_text())
    return [text for text in found if str(folder) in text]


def processes_with(text: str) -> list[psutil.Process]:
    """Those that have a text in their command line."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if text in " ".join(process.info["cmdline"] or [])
    ]


@with_tools
def test_this_host_can_measure_and_nothing_is_left(tmp_path: Path) -> None:
    found = by_name(examine([tmp_path], refresh=False))
    assert [f.name for f in found.values() if f.needed and f.ok == "no"] == []
    assert found["fio"].what[0].isdecimal()
    assert found["aio=threads"].ok == found["format=qcow2"].ok == "yes"
    assert found[f"directory {tmp_path}"].needed
    assert all(finding.hint for finding in found.values() if finding.ok == "no")
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().children(recursive=True) == []
    assert loop_files(tmp_path) == []


def test_a_directory_that_is_not_there_is_tried_and_not_left(tmp_path: Path) -> None:
    new = tmp_path / "new" / "deep"
    found = by_name(examine([new, new], refresh=False))[f"directory {new}"]
    assert found.ok != "no" and "can be made" in found.what
    assert list(tmp_path.iterdir()) == []


def test_the_current_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert f"directory {tmp_path / 'gone'}" in by_name(examine([], refresh=False))
    (tmp_path / "gone").rmdir()
    with pytest.raises(HostError, match="current folder"):
        examine([], refresh=False)


@as_root
@pytest.mark.parametrize("kind", FILE_SYSTEMS)
def test_a_file_system_is_made_or_its_package_is_named(tmp_path: Path, kind: str) -> None:
    finding = by_name(examine([tmp_path], refresh=False))[f"{kind} on loop"]
    if find_tool(f"mkfs.{kind}") is None:
        assert (finding.ok, finding.hint) == ("no", f"apt-get install {FILE_SYSTEMS[kind]}")
    elif kind in Path("/proc/filesystems").read_text().split():
        assert finding.ok == "yes", finding.what
    assert loop_files(tmp_path) == []


@as_root
def test_a_file_system_that_the_kernel_does_not_know(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mkfs that makes nothing: there is nothing that the kernel could mount."""
    (public / "mkfs.ext4").write_text("#!/bin/sh\nexit 0\n")
    (public / "mkfs.xfs").write_text("#!/bin/sh\necho no room for a log >&2\nexit 1\n")
    for program in public.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{public}:{os.environ['PATH']}")
    found = by_name(examine([public], refresh=False))
    ext4, xfs = found["ext4 on loop"], found["xfs on loop"]
    assert ext4.ok == "no" and ext4.what.startswith("mount:") and "kernel" in ext4.hint
    assert xfs.ok == "no" and xfs.what == "no room for a log" and "xfsprogs" in xfs.hint
    assert loop_files(public) == processes_with(str(public)) == []


@as_root
def test_directories_without_direct_io_and_read_only(tmp_path: Path) -> None:
    for name, kind, options in (("ram", "ramfs", "rw"), ("ro", "tmpfs", "ro")):
        (tmp_path / name).mkdir()
        argv = ["mount", "-t", kind, "-o", options, "diskproof-test", str(tmp_path / name)]
        run(argv, timeout=30)
    (tmp_path / "file").touch()
    names = ("ram", "ro", "file")
    try:
        all_found = by_name(examine([tmp_path / name for name in names], refresh=False))
        ram, ro, file = (all_found[f"directory {tmp_path / name}"] for name in names)
        assert ram.ok == "limited" and "cache=none" in ram.what and "ramfs" in ram.what
        assert ro.ok == "no" and "Read-only" in ro.what and ro.needed
        assert file.ok == "no" and "Not a directory" in file.what
        assert list((tmp_path / "ram").iterdir()) == []
        # Formats are tried where it is possible, aio=native fails there for a reason.
        assert all_found["format=raw"].ok == "yes"
        assert all_found["aio=native"].ok == "no" and all_found["aio=native"].what
        assert "direct I/O" in all_found["aio=native"].hint
    finally:
        for name in ("ram", "ro"):
            run(["umount", str(tmp_path / name)], timeout=30)


def test_without_fio_and_qemu_each_names_its_package(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("setpriv", "unshare", "sh", "true", "mount"):
        (public / name).symlink_to(str(find_tool(name)))
    monkeypatch.setenv("PATH", str(public))
    found = by_name(examine([tmp_path], refresh=False))
    for name, package in (
        ("fio", "fio"),
        ("fio's nbd engine", "fio"),
        ("qemu-img", "qemu-utils"),
        ("qemu-storage-daemon", "qemu-system-common"),
        ("format=qcow2", "qemu-utils"),
        ("aio=threads", "qemu-utils"),
    ):
        assert (found[name].ok, found[name].needed) == ("no", True)
        assert found[name].hint == f"apt-get install {package}"
    for name in ("qemu-system-x86_64", "guest buses", "accelerator"):
        assert (found[name].ok, found[name].needed) == ("no", False)
        assert found[name].hint == "apt-get install qemu-system-x86"
    assert "mmdebstrap squashfs-tools" in found["guest build"].hint
    (public / "setpriv").unlink()
    monkeypatch.setattr("diskproof.process.start.find_tool", lambda name: shutil.which(name))
    with pytest.raises(HostError) as caught:
        examine([tmp_path], refresh=False)
    assert "util-linux" in caught.value.hint


@as_root
@with_tools
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="needs a Python any user may run")
@pytest.mark.parametrize("home", ["/root", "/nonexistent"])
def test_nobody_gets_findings_and_no_traceback(public: Path, home: str) -> None:
    shutil.copytree(Path(diskproof.__file__).parent, public / "src" / "diskproof")
    shutil.copytree(Path(qemu.qmp.__file__).parent, public / "src" / "qemu" / "qmp")
    shutil.copytree(Path(psutil.__file__).parent, public / "src" / "psutil")
    built = public / "native" / "target" / "release"  # as in a checkout
    built.mkdir(parents=True)
    (public / "native" / "Cargo.toml").touch()
    shutil.copy(require_native(CONFINE), built)
    (public / "disks").mkdir()
    os.chown(public / "disks", FORMER, FORMER)
    user = ["--reuid", str(FORMER), "--regid", str(FORMER), "--clear-groups"]
    settings = [f"HOME={home}", f"PYTHONPATH={public / 'src'}"]
    program = [str(SYSTEM_PYTHON), "-c", PROGRAM, str(public / "disks"), "/root/x"]
    argv = ["setpriv", *user, "env", *settings, *program]
    done = run(argv, timeout=120, cwd=public / "disks", check=False)
    assert (done.returncode, done.error_text) == (0, "")
    found = by_name(tuple(Finding(**item) for item in json.loads(done.text.splitlines()[-1])))
    assert found[f"directory {public / 'disks'}"].ok != "no"
    assert (found["directory /root/x"].ok, found["directory /root/x"].what) == (
        "no",
        "Permission denied",
    )
    assert found["qemu-storage-daemon"].ok == found["format=qcow2"].ok == "yes"
    assert found["confined QEMU"].ok == "yes"
    assert found["guest"].ok == "no"
    for kind in FILE_SYSTEMS:
        assert found[f"{kind} on loop"].ok != "yes"
    assert list((public / "disks").iterdir()) == []


def wait_unlocked(disks: Path) -> None:
    """The kernel ends children a moment after their parent; what was forked and not yet executed
    holds its lock until then."""
    assert psutil.wait_procs(processes_with(str(disks)), timeout=20)[1] == []
    for path in (disks, *disks.glob("*/lock")):
        handle = os.open(path, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.close(handle)


@with_tools
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_at_any_moment(tmp_path: Path, signum: signal.Signals) -> None:
    """Ctrl-C leaves nothing; after kill -9 there is at most the folder that a sweep removes."""
    disks = tmp_path / "disks"
    disks.mkdir()
    settings = ["env", f"PYTHONPATH={Path(diskproof.__file__).parents[1]}"]
    argv = [*settings, sys.executable, "-c", PROGRAM, str(disks)]
    moments = random.Random(signum)
    ended = set()
    for number in range(8):
        log = tmp_path / f"log-{number}"
        reading, writing = os.pipe()
        with os.fdopen(reading) as lines, os.fdopen(writing, "w") as stdout:
            with start_process(argv, name="doctor", log=log, stdout=stdout.fileno()) as process:
                stdout.close()
                assert lines.readline() == "imported\n", process.read_log()
                if process.wait(moments.uniform(0.0, 0.4)) is None:
                    os.kill(process.pid, signum)
                ended.add(process.wait(60))
        if signum == signal.SIGKILL:
            wait_unlocked(disks)
            assert [swept for swept in sweep([disks]) if swept.kept] == []
        # The janitor leaves an empty folder of one killed before it could lock it for an hour.
        assert [path for path in disks.iterdir() if any(path.iterdir())] == []
        if signum == signal.SIGINT:
            assert list(disks.iterdir()) == []
    assert {0, 130, -signum} >= ended != {0}
    assert psutil.wait_procs(processes_with(str(disks)), timeout=20)[1] == []
    assert loop_files(disks) == []
