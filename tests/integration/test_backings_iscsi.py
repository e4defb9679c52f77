"""Disks over iSCSI: a target of the study's own (tgt) and QEMU's initiator.

Requires root, tgt, iproute2, QEMU with its iscsi driver (qemu-block-extra), FUSE.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from diskproof.backings import NO_CONSENT, probe_backing, start_place
from diskproof.backings.consent import give_consent
from diskproof.backings.iscsi import require_target
from diskproof.backings.place import start_run_dir
from diskproof.drive import NetworkDisk
from diskproof.errors import HostError, RunFailure
from diskproof.host.janitor import sweep
from diskproof.process.run_user import require_run_user
from diskproof.process.start import Completed, join_network_args, lifeline_args, run
from diskproof.qemu.disk import image_opts
from diskproof.qemu.images import read_network_size
from diskproof.records import BackingSpec, RunRecord
from support.running import assert_nothing_left, execute, has_fio_at_work, make_spec, under_load
from support.volumes import HERE, MIB, backing, find_missing, folder, lent_device

MISSING = find_missing(require_target)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
DAEMON = {"frontend": "daemon", "format": "raw"}


def checks(record: RunRecord) -> dict[str, str]:
    return {check.name: check.effective for check in record.checks}


@contextmanager
def start_disk(spec: BackingSpec, size: int = 16 * MIB) -> Iterator[NetworkDisk]:
    with start_place(spec, give_consent([spec])) as place, start_run_dir(place) as room:
        assert place.service
        with place.service.start(room, size) as disk:
            yield disk


@pytest.mark.parametrize(
    ("store", "durable"),
    [
        ("fileio", (5, 5, 5)),
        ("fileio-wb", (5, 5, 0)),
        ("blockio", (5, 5, 0)),
        ("aio", (0, 0, 0)),
    ],
)
def test_what_each_store_does_with_flushes(
    tmp_path: Path, store: str, durable: tuple[int, int, int]
) -> None:
    """tgt's store ``aio`` answers a flush and does nothing."""
    ways = ("flushes passed on", "FUA writes made durable", "plain writes made durable")
    facts = probe_backing(backing("iscsi", folder(tmp_path), store=store), NO_CONSENT)
    told = ", ".join(f"{way}: {count} of 5" for way, count in zip(ways, durable, strict=True))
    assert facts.flushes == told and told in facts.filesystem
    assert (facts.network, facts.fio, facts.own) == ("iscsi", False, False)
    assert_nothing_left(tmp_path)


def test_a_run_with_its_target_read_back(tmp_path: Path) -> None:
    spec = make_spec("sync-write-4k", size="16MiB", runtime="1s", ramp="0s")
    on = backing("iscsi", store="blockio")
    record = execute(tmp_path, spec, on=on, cache="writethrough", **DAEMON)
    assert record.failure is None
    told = checks(record)
    assert (told["server: backing store type"], told["server: backing store flags"]) == (
        "rdwr",
        "direct",
    )
    assert told["server: O_DIRECT"] == "on"
    assert told["server: flushes passed on"] == "5 of 5"
    assert told["file: drv"] == "iscsi" and '"portal": "127.0.0.1:3260"' in told["server"]
    assert told["network size"] == told["disk: image.virtual-size"] == str(16 * MIB)


def test_the_protocol_alone(tmp_path: Path) -> None:
    """A null store says that it holds 1 TiB and keeps nothing; the disk has the size asked for."""
    spec = make_spec("rand-read-4k-d1", size="16MiB", runtime="1s", ramp="0s")
    record = execute(tmp_path, spec, on=backing("iscsi", store="nullio"), cache="none", **DAEMON)
    assert record.failure is None
    told = checks(record)
    assert told["disk: image.virtual-size"] == str(16 * MIB)
    assert told["network size"] == str(1 << 40)
    assert told["server: flushes"] == "not measured"
    assert "page cache" not in told


def test_the_store_may_be_a_device_of_the_backing_below(tmp_path: Path) -> None:
    with lent_device(tmp_path / "lent.img") as device:
        below = backing("device", folder(tmp_path), path=str(device))
        with start_disk(backing("iscsi", below, store="fileio")) as disk:
            assert disk.file and disk.file.is_block_device()
            write(disk, 1 << 20)
        with device.open("rb") as stream:
            stream.seek(1 << 20)
            assert stream.read(4096) == b"\xab" * 4096


def write(disk: NetworkDisk, offset: int) -> None:
    argv = [*lifeline_args(confined=True, network=disk.namespace), "qemu-io", "--image-opts"]
    command = f"write -q -P 0xab {offset} 4k"
    run([*argv, image_opts(disk), "-c", command, "-c", "flush"], timeout=30, cwd=disk.folder)


def test_the_target_is_private(tmp_path: Path) -> None:
    """Its port is no port of the host, its control socket is in its folder, it has no rights."""
    with ExitStack() as stack:
        with suppress(OSError):  # somebody's target has it: as good
            stack.enter_context(socket.create_server(("127.0.0.1", 3260)))
        assert_private(tmp_path)
    assert_nothing_left(tmp_path)


def assert_private(path: Path) -> None:
    before = sorted(Path("/run").glob("tgtd*"))
    with start_disk(backing("iscsi", folder(path))) as disk:
        assert read_network_size(disk) == 16 * MIB
        (pid,) = disk.pids
        assert psutil.Process(pid).uids().real == require_run_user()
        assert not any(c.pid == pid for c in psutil.net_connections("tcp"))
        show = ["ip", "-oneline", "link", "show"]
        links = run([*join_network_args(disk.namespace), *show], timeout=10).text.splitlines()
        assert all("lo:" in line or "state DOWN" in line for line in links)
        assert sorted(Path("/run").glob("tgtd*")) == before


def test_a_target_that_goes_in_the_middle_is_the_reason(tmp_path: Path) -> None:
    """QEMU would try to reach it for ever."""
    spec = make_spec("rand-write-4k-d32", size="16MiB", runtime="20s")
    with under_load("tgtd", lambda child: child.kill(), has_fio_at_work):
        record = execute(
            tmp_path, spec, timeout=60, on=backing("iscsi", store="nullio"), cache="none", **DAEMON
        )
    assert record.failure and record.failure.kind == "tool"
    assert record.failure.what == "tgtd, which serves the disk under test, was killed by signal 9"


@pytest.mark.parametrize(
    ("hidden", "what", "package"),
    [("tgtadm", "tgtadm is not installed", "tgt"), ("ip", "ip is not installed", "iproute2")],
)
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, what: str, package: str
) -> None:
    from diskproof.process import start as proc

    find = proc.find_tool
    monkeypatch.setattr(proc, "find_tool", lambda name: None if name == hidden else find(name))
    with pytest.raises(HostError, match=what) as caught:
        require_target()
    assert caught.value.hint == f"apt-get install {package}"


def test_a_missing_block_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What qemu-img says without its module, from a QEMU that cannot read it."""
    from diskproof.qemu import images

    def run_hidden(argv: Sequence[str], *, env: Mapping[str, str], **_: object) -> Completed:
        return run([*hide_modules(), *argv], timeout=30, env=env, check=False)

    monkeypatch.setattr(images, "run", run_hidden)
    with pytest.raises(HostError, match="no block driver for iscsi") as caught:
        require_target()
    assert caught.value.hint == "apt-get install qemu-block-extra"
    assert caught.value.why


def hide_modules() -> list[str]:
    hide = 'for d in /usr/lib/*/qemu; do mount -t tmpfs none "$d"; done; exec "$@"'
    return ["unshare", "--mount", "--net", "sh", "-c", hide, "sh"]


def test_a_target_that_will_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diskproof.backings.iscsi._CONTROL", f"TGT_IPC_SOCKET={'x' * 200}")
    monkeypatch.setattr("diskproof.backings.server.START_SECONDS", 3.0)
    with pytest.raises(RunFailure, match="tgtd") as caught:
        probe_backing(backing("iscsi", folder(tmp_path)), NO_CONSENT)
    assert caught.value.why
    assert_nothing_left(tmp_path)


# -- nothing is left ----------------------------------------------------------------------------

OWNER = """
import os, sys
sys.path[:0] = sys.argv[1:3]
from diskproof.backings import NO_CONSENT, flush_proof, iscsi, start_place
from diskproof.backings.place import start_run_dir
from diskproof.records import BackingSpec
die_at, run = sys.argv[4], iscsi.run
def step(argv, **settings):
    done = run(argv, **settings)
    if any(die_at == word or word.endswith("/" + die_at) for word in argv):
        os._exit(9)
    return done
iscsi.run = flush_proof.run = step
with start_place(eval(sys.argv[3]), NO_CONSENT) as place, start_run_dir(place) as folder:
    with place.service.start(folder, 16 << 20) as disk:
        os._exit(9 if die_at == "served" else 1)
"""


@pytest.mark.parametrize(
    "die_at", ["show", "set", "--targetname", "--backing-store", "qemu-io", "served"]
)
def test_nothing_is_left_of_one_killed_at(tmp_path: Path, die_at: str) -> None:
    spec = backing("iscsi", folder(tmp_path))
    argv = [sys.executable, "-c", OWNER, str(HERE), str(HERE.parent / "src"), repr(spec), die_at]
    assert subprocess.run(argv, timeout=300, check=False).returncode == 9
    swept = sweep([tmp_path])
    assert swept and [each.kept for each in swept] == [""] * len(swept)
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert [process.pid for process in psutil.process_iter() if works_in(process, tmp_path)] == []


def works_in(process: psutil.Process, path: Path) -> bool:
    with suppress(OSError, psutil.Error):
        return Path(f"/proc/{process.pid}/cwd").readlink().is_relative_to(path)
    return False
