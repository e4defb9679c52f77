"""fio in a container of crun. Requires crun, fio and namespaces; some cases need root."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from diskproof.container import oci, runtime
from diskproof.container.runtime import require_containers
from diskproof.drive import DiskImage, RunContext
from diskproof.errors import DiskproofError, HostError, RunFailure
from diskproof.frontends import load_frontend
from diskproof.host.facts import probe_frontends
from diskproof.process.run_user import FORMER, require_run_user
from diskproof.process.start import run
from support.disks import SIZE, make_cell, read_ios, run_fio, start_context, start_drive

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def find_obstacle() -> str:
    try:
        require_containers()
    except DiskproofError as error:
        return str(error)
    return ""


_OBSTACLE = find_obstacle()
pytestmark = pytest.mark.skipif(bool(_OBSTACLE), reason=f"no containers: {_OBSTACLE}")


def mounts(folder: Path) -> list[str]:
    """Those below a folder; other tests have theirs."""
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in table if str(folder) in line]


def test_fio_reaches_the_disk_and_nothing_is_left(tmp_path: Path) -> None:
    null = Path("/dev/null").stat()
    with start_context(tmp_path / "images", make_cell(frontend="container")) as context:
        with load_frontend("container").start(context) as drive:
            assert (drive.facts.size, list(drive.facts.pids)) == (SIZE, [])
            assert [check for check in drive.read_back() if not check.ok] == []
            done = run_fio(drive, verify="crc32c")
            assert done.returncode == 0, done.stderr
            assert read_ios(done, "write") == 64
            assert list(done.files) == ["out.json"]
        kept = load_frontend("container").artefacts(context)
        assert [item.name for item in kept] == ["container.config.json"]
        assert any(context.image.path.read_bytes()[: 256 << 10])
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().children() == []
    assert mounts(tmp_path) == []
    now = Path("/dev/null").stat()
    assert (now.st_uid, now.st_mode) == (null.st_uid, null.st_mode)


def test_the_walls_hold(tmp_path: Path, public_file: Path) -> None:
    """What the read-back says, tried: files, writing, network, processes, namespaces, the clock."""
    script = f"""
    cat {public_file} 2>&1; ls / | tr '\\n' ' '; echo
    for file in /new /usr/new; do echo x >$file; done 2>&1 | grep -c Read-only
    cat /proc/net/dev | grep -c :; ls -d /proc/[0-9]* | wc -l
    unshare --user true 2>&1; mount -t tmpfs none /tmp 2>&1; id -u; cat /proc/1/cgroup
    """
    with start_drive(tmp_path / "images", frontend="container") as drive:
        told = drive.execute(["sh", "-c", script], timeout=60).stdout.decode()
    lines = told.splitlines()
    assert "No such file" in lines[0]
    assert set(lines[1].split()) <= {
        *("bin", "dev", "disk", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin"),
        *("scratch", "tmp", "usr"),
    }
    assert lines[2:4] == ["2", "1"]  # both read-only; the loopback device alone
    assert int(lines[4]) < 8  # the shells and programs of this very script
    assert "unshare failed: Operation not permitted" in lines[5]
    assert "permission denied" in lines[6] or "must be superuser" in lines[6]
    assert "0" in lines[7:9]


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("seccomp", lambda config: config["linux"].pop("seccomp")),
        ("no new privileges", lambda config: config["process"].pop("noNewPrivileges")),
        ("root", lambda config: config["root"].pop("readonly")),
        (
            "capabilities",
            lambda config: config["process"]["capabilities"].update(
                dict.fromkeys(("bounding", "permitted", "effective"), ["CAP_SYS_ADMIN"])
            ),
        ),
        (
            "namespaces of its own",
            lambda config: config["linux"]["namespaces"].remove({"type": "ipc"}),
        ),
    ],
)
def test_a_wall_that_is_missing_is_a_mismatch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    broken: Callable[[object], object],
) -> None:
    render = oci.render_config

    def render_broken(bundle: oci.Bundle) -> dict[str, object]:
        config = render(bundle)
        broken(config)
        return config

    monkeypatch.setattr(oci, "render_config", render_broken)
    with start_drive(tmp_path / "images", frontend="container") as drive:
        assert check in [found.name for found in drive.read_back() if not found.ok]


@as_root
def test_a_block_device(tmp_path: Path) -> None:
    backing = tmp_path / "backing"
    backing.write_bytes(bytes(SIZE))
    device = run(["losetup", "--find", "--show", str(backing)], timeout=30).text.strip()
    try:
        folder = tmp_path / "run"
        folder.mkdir()
        node = folder / "disk.device"
        os.mknod(node, 0o060600, Path(device).stat().st_rdev)
        os.chown(node, require_run_user(), require_run_user())
        os.chown(folder, -1, require_run_user())
        folder.chmod(0o710)
        image = DiskImage(node, "raw", SIZE, device=True)
        context = RunContext(make_cell(frontend="container"), image, folder, "tcg")
        with load_frontend("container").start(context) as drive:
            assert [check for check in drive.read_back() if not check.ok] == []
            done = run_fio(drive)
            assert done.returncode == 0, done.stderr
        assert any(Path(device).read_bytes()[: 256 << 10])
    finally:
        run(["losetup", "--detach", device], timeout=30)


def test_a_link_in_what_it_leaves_leads_nowhere(tmp_path: Path, public_file: Path) -> None:
    script = f"ln -s {public_file} a; ln -s {public_file.parent} b; echo mine >c"
    with start_drive(tmp_path / "images", frontend="container") as drive:
        done = drive.execute(["sh", "-c", script], timeout=60, collect=["a", "b/file", "c"])
    assert done.files == {"c": b"mine\n"}


def test_how_a_program_ends_is_told(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="container") as drive:
        assert drive.execute(["sh", "-c", "exit 7"], timeout=60).returncode == 7
        killed = drive.execute(["sh", "-c", "kill -9 $$"], timeout=60)
        assert killed.returncode == -signal.SIGKILL
        assert 0.2 <= drive.execute(["sleep", "0.2"], timeout=60).seconds < 60
        with pytest.raises(HostError, match="no-such-program"):
            drive.execute(["no-such-program"], timeout=60)


def test_a_program_that_hangs_ends_with_its_time(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="container") as drive:
        with pytest.raises(RunFailure) as caught:
            drive.execute(["sleep", "4711"], timeout=1)
    assert caught.value.kind == "timeout"
    assert not wait_for_end("4711")


PARENT = """
import sys
from pathlib import Path
from support.disks import start_drive
with start_drive(Path(sys.argv[1]), frontend="container") as drive:
    drive.execute(["sleep", "4712"], timeout=600)
"""


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "images")])
    try:
        while not processes("4712"):
            assert parent.poll() is None
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
    assert not wait_for_end("4712")
    assert mounts(tmp_path) == []


def processes(argument: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter()
        if argument in _command_line(process) and "sleep" in _command_line(process)
    ]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def wait_for_end(argument: str) -> list[psutil.Process]:
    return list(psutil.wait_procs(processes(argument), timeout=20)[1])


@as_root
def test_without_root_too(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(FORMER, FORMER, FORMER)
        os.setresuid(FORMER, FORMER, FORMER)
        os.write(writing, find_obstacle().encode() or b"it works")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == "it works"
    os.waitpid(child, 0)


def test_a_host_without_crun_says_which_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "RUNTIME", "no-such-crun")
    found = probe_frontends()
    assert "container" not in found.usable
    assert "no-such-crun is not installed" in found.reasons["container"]


def test_an_image_that_fio_cannot_read(tmp_path: Path) -> None:
    with start_context(tmp_path / "images", make_cell(frontend="daemon", format="qcow2")) as image:
        with pytest.raises(RunFailure, match="cannot read qcow2"):
            with load_frontend("container").start(image):
                pass
