"""The daemon frontend with the real daemon.

Requires qemu-storage-daemon, qemu-img and fio with its nbd engine. What reaches the host's disk is
in test_daemon_flushes.py.
"""

import dataclasses
import gc
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import psutil
import pytest

from diskproof.drive import Drive, RunContext
from diskproof.errors import RunFailure, UsageError
from diskproof.frontends import load_frontend
from diskproof.frontends.daemon import DaemonDrive
from diskproof.frontends.effective import check_cage
from diskproof.process.run_user import require_run_user
from diskproof.process.start import find_tool, run
from diskproof.qemu.images import create_image
from diskproof.records import Cell, Check, WorkloadSpec
from support.running import find_offspring
from support.stopping import stop_whole

_MISSING = [tool for tool in ("qemu-storage-daemon", "qemu-img", "fio") if not find_tool(tool)]
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}")

SIZE = 16 << 20
DEADLINE = 30.0
CELLS = [
    {"format": form, "cache": cache, "aio": aio}
    for form, cache, aio in product(
        ("raw", "qcow2", "qed"),
        ("none", "writeback", "writethrough", "directsync", "unsafe"),
        ("threads", "native", "io_uring"),
    )
    if aio != "native" or cache in ("none", "directsync")
]


def cell(**levels: str) -> Cell:
    named = {name.replace("__", "-"): level for name, level in levels.items()}
    return Cell(tuple(sorted(named.items())), WorkloadSpec("w", "fio"))


def make_context(folder: Path, asked: Cell, deadline: float = DEADLINE) -> RunContext:
    if os.geteuid() == 0:
        os.chown(folder, -1, require_run_user())
        folder.chmod(0o710)
    image = create_image(folder, asked, SIZE)
    return RunContext(asked, image, folder, "tcg", deadline)


def open_to_others(folder: Path) -> list[Path]:
    """Files and sockets in a run's folder that more than their owner may use."""
    return [path for path in folder.iterdir() if not path.is_dir() and path.stat().st_mode & 0o077]


@contextmanager
def started(context: RunContext) -> Iterator[DaemonDrive]:
    with load_frontend("daemon").start(context) as drive:
        assert isinstance(drive, DaemonDrive)
        yield drive


def fio(drive: Drive, **options: str) -> dict[str, object]:
    """One fio job on the drive; its json."""
    job = {"bs": "64k", "size": str(SIZE), **options, **drive.facts.fio}
    text = "[job]\nthread\n" + "".join(f"{name}={value}\n" for name, value in job.items())
    done = drive.execute(
        ["fio", "--output-format=json", "--output=result", "job.fio"],
        timeout=DEADLINE,
        files={"job.fio": text.encode()},
        collect=["result", "no-such-file"],
    )
    assert done.returncode == 0, done.stderr
    assert list(done.files) == ["result"]
    told = done.files["result"]  # its engine's greeting stands first
    found: dict[str, object] = json.loads(told[told.index(b"{") :])
    return found


def wrong(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in checks if not check.ok]


@pytest.mark.parametrize("levels", CELLS, ids=lambda levels: "-".join(levels.values()))
def test_what_is_asked_for_is_in_force(tmp_path: Path, levels: dict[str, str]) -> None:
    context = make_context(tmp_path, cell(**levels))
    with started(context) as drive:
        checks = drive.read_back()
        assert wrong(checks) == []
        assert {"O_DIRECT", "aio", "write-through"} <= {check.name for check in checks}
    assert find_offspring() == []


@pytest.mark.parametrize(
    "levels",
    [
        {"discard": "unmap", "detect__zeroes": "unmap"},
        {"detect__zeroes": "on"},
        {"lazy_refcounts": "on", "cluster_size": "2M", "l2__cache__size": "1M"},
    ],
    ids=lambda levels: ",".join(levels),
)
def test_the_other_levels_are_in_force(tmp_path: Path, levels: dict[str, str]) -> None:
    with started(make_context(tmp_path, cell(format="qcow2", **levels))) as drive:
        assert wrong(drive.read_back()) == []
        fio(drive, rw="randrw", direct="0")


@pytest.mark.parametrize("aio", ["threads", "native", "io_uring"])
def test_an_iothread_is_in_force_or_what_it_does_to_the_daemon_is_told(
    tmp_path: Path, aio: str
) -> None:
    """QEMU 7.2 with the fix of CVE-2024-7409 aborts when the client of such an export leaves."""
    context = make_context(tmp_path, cell(format="raw", cache="none", aio=aio, iothread="on"))
    with started(context) as drive:
        assert wrong(drive.read_back()) == []
        try:
            fio(drive, rw="randread")
            assert wrong(drive.read_back()) == []
        except RunFailure as failure:
            assert failure.kind == "qemu"
            assert "nbd_blockdev_client_closed" in failure.why
            assert "iothread" in failure.hint


MISTAKES = [
    ({"cache": "writeback"}, {"cache": "none"}, "O_DIRECT"),
    ({"cache": "none"}, {"cache": "writeback"}, "O_DIRECT"),
    ({"cache": "unsafe"}, {"cache": "writeback"}, "disk: cache.no-flush"),
    ({"cache": "writeback"}, {"cache": "writethrough"}, "write-through"),
    ({"cache": "directsync"}, {"cache": "none"}, "write-through"),
    ({"cache": "none", "aio": "threads"}, {"cache": "none", "aio": "native"}, "aio"),
    ({"cache": "none", "aio": "native"}, {"cache": "none", "aio": "threads"}, "aio"),
    ({"aio": "threads"}, {"aio": "io_uring"}, "aio"),
    ({"iothread": "off"}, {"iothread": "on"}, "iothread"),
    ({"detect-zeroes": "off"}, {"detect-zeroes": "on"}, "disk: detect_zeroes"),
    ({"discard": "ignore"}, {"discard": "unmap"}, "disk: discard"),
    ({"l2-cache-size": "1M"}, {"l2-cache-size": "2M"}, "disk: l2-cache-size"),
    ({"cluster_size": "64K"}, {"cluster_size": "4K"}, "disk: image.cluster-size"),
    ({"lazy_refcounts": "off"}, {"lazy_refcounts": "on"}, "disk: lazy-refcounts"),
]


@pytest.mark.parametrize(("running", "asked", "name"), MISTAKES)
def test_a_daemon_that_runs_with_something_else_is_found_out(
    tmp_path: Path, running: dict[str, str], asked: dict[str, str], name: str
) -> None:
    """As if a setting had not arrived: the drive is asked about another cell than it runs."""
    context = make_context(tmp_path, cell(format="qcow2", **running))
    with started(context) as drive:
        drive.context = dataclasses.replace(context, cell=cell(format="qcow2", **asked))
        assert name in wrong(drive.read_back())


@pytest.mark.parametrize("form", ["raw", "qcow2", "qed"])
def test_what_fio_writes_is_in_the_image(tmp_path: Path, form: str) -> None:
    context = make_context(tmp_path, cell(format=form))
    with started(context) as drive:
        assert drive.facts.size == SIZE
        fio(drive, rw="write", buffer_pattern="0xfeedface", end_fsync="1")
    flat = tmp_path / "flat"
    argv = ["qemu-img", "convert", "-f", form, "-O", "raw", str(context.image.path), str(flat)]
    run(argv, timeout=60)
    assert flat.read_bytes() == b"\xfe\xed\xfa\xce" * (SIZE // 4)


def test_a_folder_with_a_long_and_odd_name(tmp_path: Path) -> None:
    """Longer than a socket's address, with what job files, URIs and option parsers stumble over."""
    folder = tmp_path / ("long " * 20) / "a,b=c:d;e#f%20g?h&i'j\"k"
    folder.mkdir(parents=True)
    with started(make_context(folder, cell(format="qcow2"))) as drive:
        assert wrong(drive.read_back()) == []
        fio(drive, rw="read")


def test_the_daemon_is_confined(tmp_path: Path) -> None:
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        status = Path(f"/proc/{drive.facts.pids[0]}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert open_to_others(tmp_path) == []
        if os.geteuid() == 0:
            assert psutil.Process(drive.facts.pids[0]).uids().real == require_run_user()
            ours = Path("/proc/self/ns/net").readlink()
            assert Path(f"/proc/{drive.facts.pids[0]}/ns/net").readlink() != ours


def test_the_daemon_opens_no_file_outside_its_folder(tmp_path: Path, public_file: Path) -> None:
    context = make_context(tmp_path, cell(format="raw"))
    node = {"driver": "file", "read-only": True, "locking": "off"}
    with started(context) as drive:
        inside = {**node, "node-name": "inside", "filename": context.image.path.name}
        drive.qmp.execute("blockdev-add", inside)
        for name in (str(public_file), "/etc/passwd"):
            with pytest.raises(RunFailure, match="Permission denied"):
                outside = {**node, "node-name": "outside", "filename": name}
                drive.qmp.execute("blockdev-add", outside)
        assert check_cage(drive.qmp).effective == "out of reach"


def test_a_daemon_out_of_its_cage_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cage such files do open: it is the cage that keeps them closed, and it is seen."""
    monkeypatch.setattr("diskproof.frontends.daemon.QEMU_CAGE", None)
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        checks = drive.read_back()
    assert wrong(checks) == ["files of others"]
    assert "it opens them" in [check.effective for check in checks]


def test_a_kernel_without_cages_is_said_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("diskproof.process.start", "diskproof.frontends.effective"):
        monkeypatch.setattr(f"{module}.find_cage_obstacle", lambda: "no Landlock here")
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        found = [check for check in drive.read_back() if check.name == "files of others"]
    assert [(check.ok, check.effective) for check in found] == [(True, "it opens them")]
    assert "no Landlock here" in found[0].requested


def test_nothing_is_left(tmp_path: Path) -> None:
    gc.collect()  # of earlier tests
    before = len(list(Path("/proc/self/fd").iterdir()))
    context = make_context(tmp_path, cell(format="qcow2"))
    with pytest.raises(KeyboardInterrupt), started(context) as drive:
        fio(drive, rw="write")
        raise KeyboardInterrupt
    assert find_offspring() == []
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"disk.qcow2", "qemu-storage-daemon.log", "qemu-storage-daemon.argv.json"}


def test_artefacts_tell_the_command_line_also_after_a_failure(tmp_path: Path) -> None:
    context = make_context(tmp_path, cell(format="qcow2"))
    context.image.path.write_bytes(b"not an image")
    with pytest.raises(RunFailure) as caught, started(context):
        pass
    assert caught.value.kind == "qemu"
    assert "Image is not in qcow2 format" in caught.value.why
    kept = {a.name: a.content for a in load_frontend("daemon").artefacts(context)}
    assert json.loads(kept["qemu-storage-daemon.argv.json"])[0] == "qemu-storage-daemon"
    assert b"Image is not in qcow2 format" in kept["qemu-storage-daemon.log"]
    assert find_offspring() == []


def test_an_image_that_is_gone(tmp_path: Path) -> None:
    context = make_context(tmp_path, cell(format="raw"))
    context.image.path.unlink()
    with pytest.raises(RunFailure, match="qemu-storage-daemon ended") as caught, started(context):
        pass
    assert "No such file" in caught.value.why


def test_native_aio_without_direct_io_is_refused_by_the_daemon(tmp_path: Path) -> None:
    context = make_context(tmp_path, cell(format="raw", cache="writeback", aio="native"))
    with pytest.raises(RunFailure) as caught, started(context):
        pass
    assert "cache.direct=on" in caught.value.why


def test_a_daemon_that_is_killed_is_a_failure_with_its_log(tmp_path: Path) -> None:
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        os.kill(drive.facts.pids[0], signal.SIGKILL)
        drive.process.wait(DEADLINE)
        with pytest.raises(RunFailure, match="killed by signal 9") as caught:
            fio(drive, rw="read")
        assert caught.value.kind == "qemu"
        assert "qemu-storage-daemon.log" in dict(caught.value.evidence)
        with pytest.raises(RunFailure):
            drive.read_back()


def test_a_daemon_that_hangs_ends_at_a_deadline(tmp_path: Path) -> None:
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        stop_whole(drive.facts.pids[0])
        with pytest.raises(RunFailure) as caught:
            argv = ["fio", "--thread", "--name=x", "--rw=read", "--size=4k", *_target(drive)]
            drive.execute(argv, timeout=2)
        assert caught.value.kind == "timeout"
        with pytest.raises(RunFailure) as caught:
            drive.qmp.execute("query-version", timeout=0.5)
        assert caught.value.kind == "qemu"
        os.kill(drive.facts.pids[0], signal.SIGCONT)


def _target(drive: Drive) -> list[str]:
    return [f"--{name}={value}" for name, value in drive.facts.fio.items()]


def test_a_program_that_fails_is_an_execution_not_an_exception(tmp_path: Path) -> None:
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        done = drive.execute(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=DEADLINE)
        assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.parametrize("name", ["/etc/passwd", "../disk.raw", "a/../../b", ""])
def test_files_stay_in_the_scratch_folder(tmp_path: Path, name: str) -> None:
    with started(make_context(tmp_path, cell(format="raw"))) as drive:
        with pytest.raises(ValueError, match="scratch"):
            drive.execute(["true"], timeout=DEADLINE, files={name: b""})
        with pytest.raises(ValueError, match="scratch"):
            drive.execute(["true"], timeout=DEADLINE, collect=[name])


def test_unknown_frontend() -> None:
    with pytest.raises(UsageError, match="unknown frontend"):
        load_frontend("daemon ")
