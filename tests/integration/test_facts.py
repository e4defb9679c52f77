"""Facts of this very host, and of the same host with something taken away.

Requires fio, qemu-img and qemu-storage-daemon; refused system calls need strace and the right to
trace, mounts and other users need root.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT
from diskproof.backings.zfs import require_zfs
from diskproof.errors import HostError, RunFailure
from diskproof.host.facts import probe_facts
from diskproof.host.identity import host_record
from diskproof.host.reclaim import find_reclaim
from diskproof.process.native import require_native
from diskproof.process.start import CONFINE, find_tool, run
from diskproof.records import BackingSpec, HostFacts
from support.disks import run_fio, start_drive
from support.memory_disks import start_memory_disk
from support.volumes import backing, find_missing, folder

_TOOLS = ("qemu-storage-daemon", "qemu-img", "fio")
_MISSING = [tool for tool in _TOOLS if find_tool(tool) is None]
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}")

FLOOR = ("setpriv", "unshare", "sh", "env")  # what starts every process


def probe(*folders: Path, guest: bool = False) -> HostFacts:
    backings = [
        BackingSpec(f"d{number}", "directory", (("path", str(folder)),), make=True)
        for number, folder in enumerate(folders)
    ]
    return probe_facts(backings, NO_CONSENT, guest=guest, progress=lambda _: None)


@pytest.fixture
def poor_path(public: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH is this folder, with nothing of QEMU and fio in it."""
    for name in FLOOR:
        (public / name).symlink_to(str(find_tool(name)))
    monkeypatch.setenv("PATH", str(public))
    return public


def test_this_host(tmp_path: Path) -> None:
    facts = probe(tmp_path / "new")
    assert {"host", "daemon"} <= facts.frontends
    assert "threads" in facts.aio
    assert {"raw", "qcow2"} <= facts.formats
    assert facts.backings["d0"].free_bytes > 0
    assert facts.memory_bytes > 1 << 28 and facts.cpus >= 1
    assert (facts.accel, "not probed" in facts.accel_reason) == ("tcg", True)
    missing = {f"aio={mode}" for mode in {"threads", "native", "io_uring"} - facts.aio}
    missing |= {f"format={form}" for form in {"raw", "qcow2", "qed"} - facts.formats}
    assert missing == {key for key in facts.reasons if key.startswith(("aio=", "format="))}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_tool("qemu-system-x86_64") is None, reason="needs qemu-system-x86_64")
def test_buses_come_from_the_emulator(tmp_path: Path) -> None:
    facts = probe(tmp_path)
    assert {"virtio-blk", "virtio-scsi", "ide", "ahci"} <= facts.buses
    assert {"virtio-blk", "virtio-scsi"} <= facts.iothread_buses <= facts.buses
    assert "ide" not in facts.iothread_buses


def test_what_is_said_of_the_daemons_iothread_is_what_a_load_meets(tmp_path: Path) -> None:
    fault = probe(tmp_path).reasons.get("frontend=daemon,iothread=on", "")
    with start_drive(tmp_path, frontend="daemon", format="raw", iothread="on") as drive:
        try:
            worked = run_fio(drive).returncode == 0
        except RunFailure as failure:
            assert failure.kind == "qemu"
            worked = False
    assert worked == (fault == "")


@pytest.mark.skipif(find_tool("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("call", "mode", "words"),
    [("io_uring_setup", "io_uring", "io_uring"), ("io_setup", "native", "native AIO")],
)
def test_an_aio_mode_that_the_kernel_refuses(
    public: Path, monkeypatch: pytest.MonkeyPatch, call: str, mode: str, words: str
) -> None:
    """Compiled in and refused, as by kernel.io_uring_disabled and by seccomp in containers."""
    if mode not in probe(public / "disks").aio:
        pytest.skip(f"{mode} does not work here anyway")
    # Around the walls, for inside nobody may trace; -D, for they look who their parent is.
    strace = f"{find_tool('strace')} -D -f -qq -o /dev/null -e trace={call}"
    wrapper, confine = public / CONFINE, require_native(CONFINE)
    wrapper.write_text(f'#!/bin/sh\nexec {strace} -e inject={call}:error=EPERM {confine} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr("diskproof.process.start.require_native", lambda name: wrapper)
    facts = probe(public / "disks")
    assert {"threads", "native", "io_uring"} - facts.aio == {mode}
    assert words in facts.reasons[f"aio={mode}"]
    assert {"raw", "qcow2"} <= facts.formats


def test_without_direct_io_native_is_refused_and_the_rest_works(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path / "ram", kind="ramfs", required=False):
        facts = probe(tmp_path / "ram")
        assert not facts.backings["d0"].o_direct
        assert "native" not in facts.aio and facts.reasons["aio=native"]
        assert {"host", "daemon"} <= facts.frontends
        assert {"raw", "qcow2"} <= facts.formats
        # A directory with direct I/O next to it is the one that native is tried in.
        (tmp_path / "disk").mkdir()
        both = probe(tmp_path / "ram", tmp_path / "disk")
        assert ("native" in both.aio) == both.backings["d1"].o_direct
        assert list((tmp_path / "ram").iterdir()) == []


def test_a_read_only_directory_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path, required=False):
        run(["mount", "-o", "remount,ro", str(tmp_path)], timeout=30)
        with pytest.raises(HostError, match="read-only"):
            probe(tmp_path)


def test_without_fio_and_qemu_each_reason_names_the_package(
    poor_path: Path, tmp_path: Path
) -> None:
    facts = probe(tmp_path, guest=True)
    assert facts.frontends == facts.formats == facts.buses == frozenset()
    assert facts.aio == {"threads"}
    assert "apt-get install fio" in facts.reasons["frontend=host"]
    assert "apt-get install qemu-system-common" in facts.reasons["frontend=daemon"]
    assert "apt-get install qemu-system-x86" in facts.reasons["frontend=guest"]
    assert "apt-get install qemu-utils" in facts.reasons["format=qcow2"]
    assert "qemu-img is not installed" in facts.reasons["aio=io_uring"]
    assert "apt-get install qemu-system-x86" in facts.reasons["bus=nvme"]
    assert facts.accel == "tcg"
    record = host_record(facts.accel, facts.accel_reason)
    assert (record.facts["qemu_version"], record.facts["fio_version"]) == ("", "")


def test_a_fio_without_the_nbd_engine(poor_path: Path, tmp_path: Path) -> None:
    for tool in _TOOLS:
        (poor_path / tool).symlink_to(str(find_tool_outside(tool)))
    (poor_path / "fio").unlink()
    (poor_path / "fio").write_text(
        f'#!/bin/sh\n[ "$1" != --enghelp=nbd ] || set -- --enghelp=none\n'
        f'exec {find_tool_outside("fio")} "$@"\n'
    )
    (poor_path / "fio").chmod(0o755)
    facts = probe(tmp_path)
    assert facts.frontends == {"host"}
    assert "nbd engine" in facts.reasons["frontend=daemon"]


def find_tool_outside(name: str) -> str:
    found = [Path(folder, name) for folder in ("/usr/bin", "/usr/local/bin")]
    return str(next(path for path in found if path.exists()))


def test_a_host_is_recognised() -> None:
    first, again = host_record("tcg", "one sentence"), host_record("tcg", "another")
    assert first.id == again.id and first.name == again.name
    assert first.id != host_record("kvm", "one sentence").id
    assert first.facts["accel_reason"] == "one sentence"
    assert all(first.facts[name] for name in ("kernel", "cpu_model", "fio_version"))
    assert str(first.facts["qemu_version"])[0].isdecimal()


def test_a_server_that_does_not_start_costs_its_own_cells_only(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssd = BackingSpec("ssd", "directory", (("path", str(public)),))
    options = {"cache": "none", "aio": "threads", "discard": "unmap", "uri": ""}
    nbd = BackingSpec("served", "nbd", tuple(options.items()), on=ssd)
    broken = public / "qemu-nbd"
    broken.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 126\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{public}:{os.environ['PATH']}")
    facts = probe_facts([ssd, nbd], NO_CONSENT, guest=False, progress=lambda _: None)
    assert not facts.backings["ssd"].obstacle and facts.backings["ssd"].o_direct
    told = facts.backings["served"]
    assert told.network == "nbd" and "ended with status 126" in told.obstacle
    gone = replace(ssd, options=(("path", str(public / "none")),))
    with pytest.raises(HostError, match="none"):  # what it lies on is not left out
        probe_facts([replace(nbd, on=gone)], NO_CONSENT, guest=False, progress=lambda _: None)


def test_what_lies_on_a_server_that_does_not_start_is_left_out_with_it(public: Path) -> None:
    ssd = BackingSpec("ssd", "directory", (("path", str(public)),))
    options = {"store": "no-such-store", "size": str(64 << 20)}
    lio = BackingSpec("far", "lio", tuple(options.items()), on=ssd)
    above = BackingSpec("above", "filesystem", (("fs", "ext4"),), on=lio)
    facts = probe_facts([ssd, lio, above], NO_CONSENT, guest=False, progress=lambda _: None)
    assert facts.backings["far"].obstacle and not facts.backings["ssd"].obstacle
    assert facts.backings["above"].obstacle == facts.backings["far"].obstacle


def test_what_lies_on_zfs_is_left_out_where_there_is_none(tmp_path: Path) -> None:
    """With the reason; a mistake in what is asked of ZFS still ends a plan where there is one."""
    below = replace(folder(tmp_path), name="below", make=True)
    pool = replace(backing("zfs", below, type="dataset"), name="pool")
    volume = replace(backing("filesystem", pool), name="fs")
    if not find_missing(require_zfs):
        pytest.skip("there is ZFS here")
    facts = probe_facts([below, pool, volume], NO_CONSENT, guest=False, progress=lambda _: None)
    why = {name: found.obstacle for name, found in facts.backings.items()}
    assert why["below"] == ""
    assert "zfsutils-linux" in why["pool"] or "there is no ZFS here" in why["pool"]
    assert why["fs"] == why["pool"]


def test_idle_memory_that_the_kernel_takes_is_a_fact(tmp_path: Path) -> None:
    def least() -> float | None:
        return min((each.seconds for each in find_reclaim()), default=None)

    before = least()
    seen = probe(tmp_path).idle_seconds
    assert seen in (before, least())  # a test beside may stop or start it
