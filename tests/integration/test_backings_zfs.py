"""Pools made for a study. Requires root, zfsutils-linux and the module zfs; where it is missing,
tests/vm/test_backings_guest.py runs this file in a guest that has it."""

import mmap
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT, start_place, zfs
from diskproof.backings.consent import give_consent
from diskproof.backings.loop import find_loops
from diskproof.backings.volumes import SYS, run_quietly
from diskproof.backings.zfs import require_zfs
from diskproof.drive import Command, Drive, DriveFacts, Execution
from diskproof.errors import HostError
from diskproof.frontends.host import libaio_options
from diskproof.host.janitor import sweep
from diskproof.process.start import run
from diskproof.records import BackingSpec, Check
from diskproof.study.load import parse_study
from diskproof.workloads import load_workload
from support.volumes import (
    MIB,
    assert_doctor_made,
    assert_last_close_drops_pages,
    backing,
    find_missing,
    folder,
    lent_device,
    signatures,
    start_owner,
    write_and_read,
)

MISSING = find_missing(require_zfs)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
SIZE = 32 * MIB
SMALL = str(SIZE)
VDEVS = {"single": 1, "mirror": 2, "raidz1": 3, "raidz2": 4}


def pools() -> list[str]:
    return run(["zpool", "list", "-H", "-o", "name"], timeout=60).text.split()


def state() -> tuple[object, ...]:
    """Pools, volumes' nodes, and the parameters of the modules."""
    modules = [Path("/sys/module") / name / "parameters" for name in ("zfs", "spl")]
    files = [path for folder in modules for path in folder.glob("*") if is_readable(path)]
    nodes = {path.name for where in (SYS, Path("/dev")) for path in where.glob("zd[0-9]*")}
    return sorted(pools()), nodes, {path: path.read_bytes() for path in files}


def is_readable(path: Path) -> bool:
    """Some are for writing only."""
    return bool(path.stat().st_mode & 0o444)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another's pool, with a volume."""
    name = f"others{os.getpid()}"
    with lent_device(tmp_path_factory.mktemp("others") / "image", 128 * MIB) as device:
        options = ["-o", "cachefile=none", "-O", "mountpoint=none"]
        run(["zpool", "create", *options, name, str(device)], timeout=60)
        try:
            run(["zfs", "create", "-s", "-V", "8M", f"{name}/volume"], timeout=60)
            yield name
            history = run(["zpool", "history", name], timeout=60).text.splitlines()
            assert len([line for line in history if line.strip()]) == 3  # a head and those two
        finally:
            run(["zpool", "destroy", "-f", name], timeout=60)


@pytest.fixture(autouse=True)
def unchanged(tmp_path: Path, others: str) -> Iterator[None]:
    """Whatever a test does, nothing of it is left, and another's pool is as it was."""
    before = state()
    assert others in pools()
    yield
    assert state() == before
    assert find_loops(tmp_path) == () and list(tmp_path.glob("**/diskproof-*")) == []


def get(pool_of: Path | str, names: str) -> list[str]:
    """Properties of the disk in the only pool of ours, as ZFS tells them."""
    (pool,) = [name for name in pools() if name.startswith("diskproof_")]
    target = pool if pool_of == "pool" else f"{pool}/{zfs.DISK}"
    tool = "zpool" if pool_of == "pool" else "zfs"
    query = [tool, "get", "-H", "-p", "-o", "value", names, target]
    return run(query, timeout=60).text.split()


@pytest.mark.parametrize("vdev", VDEVS)
def test_a_volume_is_made_filled_and_gone(tmp_path: Path, vdev: str) -> None:
    """With the smallest blocks, which cost parity and padding most, and nothing to compress."""
    given = {"vdev": vdev, "volblocksize": "4096", "compression": "off"}
    with start_place(backing("zfs", folder(tmp_path), size=SMALL, **given), NO_CONSENT) as place:
        assert "(volblocksize=4 KiB, sync=standard, compression=off, " in place.name
        where = "" if vdev == "single" else f"{vdev} of {VDEVS[vdev]} x "
        assert place.name.startswith(f"ZFS zvol on {where}a loop device ")
        assert len(place.below) == VDEVS[vdev] and all(path.is_file() for path in place.below)
        assert place.free_bytes() == SIZE
        assert get("disk", "volblocksize,refreservation") == ["4096", "0"]
        write_and_read(place)
        assert place.device
        with place.device.open("r+b", buffering=0) as stream:
            for _ in range(SIZE // MIB):
                assert stream.write(b"\xa5" * MIB) == MIB
            os.fsync(stream.fileno())
        assert_last_close_drops_pages(place.device, SIZE)
        assert get("pool", "ashift,health") == ["12", "ONLINE"]
        assert int(get("disk", "referenced")[0]) >= SIZE


def test_space_is_reserved_on_request(tmp_path: Path) -> None:
    given = {"size": SMALL, "reserve": "yes", "volblocksize": "65536"}
    with start_place(backing("zfs", folder(tmp_path), **given), NO_CONSENT) as place:
        assert ", reserved" in place.name
        size, reserved = get("disk", "volblocksize,refreservation")
        assert size == "65536" and int(reserved) >= SIZE


@pytest.mark.parametrize(
    "given",
    [
        {"recordsize": "4096", "compression": "off", "atime": "off"},
        {"compression": "lz4", "sync": "always", "logbias": "throughput", "primarycache": "none"},
        {
            "recordsize": "1048576",
            "compression": "zstd",
            "sync": "disabled",
            "primarycache": "metadata",
            "reserve": "yes",
        },
    ],
)
def test_a_dataset_is_made_used_and_gone(tmp_path: Path, given: dict[str, str]) -> None:
    spec = backing("zfs", folder(tmp_path), type="dataset", size=SMALL, **given)
    wanted = zfs.properties_of(spec)
    with start_place(spec, NO_CONSENT) as place:
        assert place.device is None and place.name.startswith("ZFS dataset on a loop device ")
        assert get("disk", ",".join(wanted)) == list(wanted.values())
        reserved = given.get("reserve") == "yes"
        assert get("disk", "refreservation") == [SMALL if reserved else "0"]
        assert SIZE - MIB <= place.free_bytes() <= SIZE
        file = place.folder / "file"
        file.write_bytes(b"kept there" * 1000)
        assert file.read_bytes() == b"kept there" * 1000


def read_bytes() -> int:
    """What the only device of our pool has read."""
    (pool,) = [name for name in pools() if name.startswith("diskproof_")]
    (loop,) = re.findall(r"/dev/(loop\d+)", run(["zpool", "status", "-P", pool], timeout=60).text)
    return int((SYS / loop / "stat").read_text().split()[2]) * 512


def test_direct_io_is_answered_by_the_cache_where_that_is_told(tmp_path: Path) -> None:
    spec = backing("zfs", folder(tmp_path), type="dataset", size=SMALL)
    with start_place(spec, NO_CONSENT) as place:
        assert ("buffers direct I/O" in place.name) == zfs.is_buffering(zfs.read_version())
        file = place.folder / "file"
        file.write_bytes(os.urandom(4 * MIB))
        handle = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            os.fsync(handle)
            before = read_bytes()
            with mmap.mmap(-1, 4 * MIB) as memory:
                assert os.preadv(handle, [memory], 0) == 4 * MIB
                found = read_bytes() - before
                assert memory[:] == file.read_bytes()
            assert (found < MIB) == zfs.is_buffering(zfs.read_version())  # ZFS's own, a little
        finally:
            os.close(handle)


class Here(Drive):
    """fio without walls: a guest has no program that makes them."""

    def run(self, command: Command) -> Execution:
        with tempfile.TemporaryDirectory() as scratch:
            for name, content in command.files.items():
                (Path(scratch) / name).write_bytes(content)
            done = run(command.argv, cwd=Path(scratch), timeout=command.timeout, check=False)
        return Execution(done.returncode, done.stdout, done.stderr, done.seconds)

    def read_back(self) -> tuple[Check, ...]:
        return ()


@pytest.mark.parametrize("given", [{"volblocksize": "4096"}, {"type": "dataset"}])
def test_a_fill_leaves_its_cache_empty_and_reads_fill_it(
    tmp_path: Path, given: dict[str, str]
) -> None:
    """Its cache holds all of this disk: whatever is read from below is read for the first time."""
    spec = parse_study("[workloads.cache-flood]\naccesses = 4000").workloads[0]
    on = backing("zfs", folder(tmp_path), size=SMALL, recordsize="4096", **given)
    with start_place(on, NO_CONSENT) as place:
        disk = place.device or place.folder / "disk.raw"
        with place.uncached(), disk.open("wb") as stream:
            stream.write(os.urandom(SIZE // 2))
            os.fsync(stream.fileno())
        assert get("disk", "primarycache") == ["all"]
        drive = Here(DriveFacts(SIZE // 2, libaio_options(str(disk)), path=str(disk)))
        result = load_workload(spec.kind).run(spec, drive)
    told = {metric.name: metric.value for metric in result.metrics}
    assert result.checks[0].effective == "misses of data in ZFS's ARC"
    assert told["cold_cached"] < 90 and told["kept"] > 99
    assert told["warm_cached"] > 99 and told["flooded_cached"] > 99
    assert told["in_page_cache"] == told["cached_twice"] == 0 and told["in_arc"] > 1


@pytest.mark.parametrize(("primarycache", "meanwhile"), [("all", "metadata"), ("none", "none")])
def test_what_stands_on_it_keeps_its_cache_empty_too(
    tmp_path: Path, primarycache: str, meanwhile: str
) -> None:
    on = backing("zfs", folder(tmp_path), size=SMALL, primarycache=primarycache)
    with start_place(backing("filesystem", on, fs="ext2"), NO_CONSENT) as place:
        with pytest.raises(OSError, match="full"), place.uncached():
            assert get("disk", "primarycache") == [meanwhile]
            raise OSError("the disk is full")
        assert get("disk", "primarycache") == [primarycache]


def test_sync_writes_go_to_a_log_device(tmp_path: Path) -> None:
    spec = backing("zfs", folder(tmp_path), size=SMALL, log="file", sync="always")
    with start_place(spec, NO_CONSENT) as place:
        assert ", with a log device" in place.name and place.below[-1].name == "log.img"
        written = place.below[-1].stat().st_blocks
        write_and_read(place)
        assert place.below[-1].stat().st_blocks >= written + MIB // 512


def test_a_property_that_is_not_as_it_was_set_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inherited(argv: list[str]) -> object:
        done = run_quietly(argv)
        if argv[:2] == ["zfs", "create"]:  # somebody changes it at that moment
            run_quietly(["zfs", "set", "sync=disabled", argv[-1]])
        return done

    monkeypatch.setattr("diskproof.backings.volumes.run_quietly", inherited)
    spec = backing("zfs", folder(tmp_path), size=SMALL, sync="always")
    with pytest.raises(HostError) as caught, start_place(spec, NO_CONSENT):
        pytest.fail("it was not noticed")
    assert caught.value.why == "sync is disabled, not always"


def test_a_device_is_left_as_empty_as_it_was(tmp_path: Path) -> None:
    with lent_device(tmp_path / "lent.img", 384 * MIB) as device:
        lent = backing("device", folder(tmp_path / "images"), path=str(device))
        spec = backing("zfs", lent, size=SMALL)
        with start_place(spec, give_consent([spec])) as place:
            assert place.name.startswith(f"ZFS zvol on {device} (")
            write_and_read(place)
        assert signatures(device) == ""


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"size": str(1 << 50)}, "does not fit"),
        ({"volblocksize": "5000"}, "ZFS cannot make"),
        ({"type": "dataset", "compression": "strong"}, "ZFS cannot make"),
    ],
)
def test_what_cannot_be_made_says_why_and_leaves_nothing(
    tmp_path: Path, given: dict[str, str], what: str
) -> None:
    spec = backing("zfs", folder(tmp_path), **{"size": SMALL, **given})
    with pytest.raises(HostError, match=what) as caught, start_place(spec, NO_CONSENT):
        pytest.fail("it was made")
    assert caught.value.why


def assert_swept(path: Path) -> None:
    swept = sweep([path])
    assert swept and [each.kept for each in swept] == [""] * len(swept)


@pytest.mark.parametrize("given", [{}, {"type": "dataset", "vdev": "raidz2", "log": "file"}])
def test_after_kill_9_a_sweep_removes_it(tmp_path: Path, given: dict[str, str]) -> None:
    before = pools()
    with start_owner(backing("zfs", folder(tmp_path), size=SMALL, **given)):
        pass
    assert len(pools()) == len(before) + 1
    assert_swept(tmp_path)


@pytest.mark.parametrize("step", [1, 2])
def test_an_owner_that_dies_while_it_is_made_leaves_nothing(tmp_path: Path, step: int) -> None:
    """After the pool, after the volume."""
    with start_owner(backing("zfs", folder(tmp_path), size=SMALL), die_at=step):
        pass
    assert_swept(tmp_path)


def test_a_file_system_on_a_volume_goes_with_its_dead_owner(tmp_path: Path) -> None:
    volume: BackingSpec = backing("zfs", folder(tmp_path), size=SMALL)
    with start_owner(backing("filesystem", volume, fs="ext2")):
        pass
    assert_swept(tmp_path)


def test_doctor_has_made_one_of_each(tmp_path: Path) -> None:
    assert_doctor_made("zfs", "type zvol, dataset", tmp_path)
