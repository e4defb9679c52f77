"""A guest goes to a file and comes back as it was; what is no such file never comes in."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import HostError, UsageError
from diskproof.guest.ours import build, packages
from diskproof.guest.ours.cache_folder import cache_folder
from diskproof.guest.ours.parcel import Item, Parcel, parse_manifest
from diskproof.guest.ours.travel import export_guest, import_guest
from support.guest_parcels import (
    FACTS,
    make_guest,
    manifest_of,
    move_to_host,
    parcel_of,
)
from support.memory_disks import start_memory_disk


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a guest that was built here."""
    move_to_host(monkeypatch, tmp_path / "builder")
    return make_guest()


@pytest.fixture
def elsewhere(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of another host, which is no Debian; we are there now."""
    move_to_host(monkeypatch, tmp_path / "elsewhere", None)
    return cache_folder()


def keep(tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "guest.tar.gz").write_bytes(content)
    return tmp_path / "guest.tar.gz"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != build.IMPORTED
    }


def test_it_arrives_as_it_was_where_nothing_can_be_built(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = export_guest(tmp_path / "guest.tar.gz", "", silent)
    was = build.require_guest()
    move_to_host(monkeypatch, tmp_path / "elsewhere", None)
    assert build.find_guest() is None
    done = import_guest(tmp_path / "guest.tar.gz", exported.sha256, silent)
    assert done.guest == build.require_guest() == build.build_guest()
    assert (done.guest.id, done.guest.root_modules) == (was.id, was.root_modules)
    assert contents(done.guest.kernel.parent) == contents(built)
    assert not done.there and import_guest(tmp_path / "guest.tar.gz", None, silent).there


def test_equal_guests_make_equal_files_that_tar_reads(built: Path, tmp_path: Path) -> None:
    one, two = (export_guest(tmp_path / name, "", silent) for name in ("one", "two"))
    os.utime(built / "kernel", (1, 1))
    three = export_guest(tmp_path / "one", "", silent)  # an older file is replaced
    assert one.sha256 == two.sha256 == three.sha256
    assert sorted(path.name for path in tmp_path.iterdir()) == ["builder", "one", "two"]
    with tarfile.open(tmp_path / "two") as archive:
        kernel = archive.extractfile("kernel")
        assert kernel is not None and kernel.read() == (built / "kernel").read_bytes()
        assert [member.name for member in archive][0] == "manifest.json"


def test_what_was_imported_last_is_the_guest_also_on_another_debian(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = keep(tmp_path, parcel_of(built))
    move_to_host(monkeypatch, tmp_path / "elsewhere", "trixie")
    assert build.find_base() != cache_folder() / built.name
    import_guest(file, None, silent)
    assert build.find_base() == cache_folder() / built.name
    assert build.find_guest("postgres") is None  # that is another guest


def test_other_programs_make_another_guest_of_the_same_root(
    elsewhere: Path, built: Path, tmp_path: Path
) -> None:
    manifest = replace(manifest_of(built), id=f"{built.name}-000000000000")
    done = import_guest(keep(tmp_path, parcel_of(built, manifest)), None, silent)
    assert done.guest.id != done.manifest.id and done.guest.id.startswith(built.name)


def test_packages_of_another_day_do_not_take_the_place_of_these(
    built: Path, tmp_path: Path
) -> None:
    file = keep(tmp_path, parcel_of(built))
    (built / "root.squashfs").write_bytes(b"hsqs of today")
    with pytest.raises(HostError, match="another such guest is here") as caught:
        import_guest(file, None, silent)
    assert str(built) in caught.value.hint
    assert (built / "root.squashfs").read_bytes() == b"hsqs of today"


def assert_nothing_came(cache: Path) -> None:
    assert [path.name for path in cache.rglob("*")] in ([], ["lock"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"base": "0" * 12}, "another version of diskproof"),
        ({"suite": "trixie"}, "another version of diskproof"),
        ({"extra": "emacs"}, "another version of diskproof"),
        ({"base": "../../etc"}, "damaged"),
        ({"items": ()}, "damaged"),
        ({"items": (Item("kernel", 1 << 60, "0" * 64),)}, "damaged"),
    ],
)
def test_a_manifest_of_something_else(
    elsewhere: Path, built: Path, tmp_path: Path, change: dict[str, object], why: str
) -> None:
    manifest = manifest_of(built)
    true = parcel_of(built, replace(manifest, items=()))
    written = zlib.decompress(true, 31)
    text = json.loads(written[512:].partition(b"\0")[0])
    wanted = manifest if "items" not in change else replace(manifest, items=())
    given = {**text, "items": [vars(item) for item in wanted.items]} | change
    given["items"] = [vars(i) if isinstance(i, Item) else i for i in given["items"]]  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=why):
        import_guest(keep(tmp_path, packed(member(json.dumps(given).encode()))), None, silent)
    assert_nothing_came(elsewhere)


def member(content: bytes, name: str = "manifest.json", kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(content), kind
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


def packed(content: bytes) -> bytes:
    return gzip.compress(content + bytes(1024), 1, mtime=0)


def test_another_architecture_and_another_version_are_named(built: Path) -> None:
    text = zlib.decompress(parcel_of(built), 31)[512:].partition(b"\0")[0]
    for change, why in (
        ({"architecture": "aarch64"}, "it is for 'aarch64', and guests here are x86_64"),
        ({"version": 2}, "it is of version 2, this diskproof knows 1"),
        ({"format": "docker"}, "it has another manifest"),
    ):
        with pytest.raises(UsageError) as caught:
            parse_manifest(json.dumps(json.loads(text) | change).encode())
        assert caught.value.why == why


def replaced(built: Path, old: bytes, new: bytes) -> bytes:
    """The file with other bytes in its tar, packed again."""
    content = zlib.decompress(parcel_of(built), 31)
    assert old in content
    return gzip.compress(content.replace(old, new), 1)


def test_hostile_archives_are_refused(elsewhere: Path, built: Path, tmp_path: Path) -> None:
    """Every header that tar knows and we do not write, in the place of a file's."""
    true = zlib.decompress(parcel_of(built), 31)
    header = tarfile.TarInfo("kernel")
    header.size = (built / "kernel").stat().st_size
    ours = header.tobuf(tarfile.USTAR_FORMAT)
    assert ours in true
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE,
             tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.XHDTYPE,
             tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE)  # fmt: skip
    odd = [{"type": kind, "linkname": "/etc/shadow"} for kind in kinds]
    odd += [{"name": name} for name in ("../kernel", "/etc/passwd", "modules/../../x", "ker")]
    odd += [{"mode": 0o4755}, {"size": header.size + 512}, {"size": 0}, {"uid": 1}]
    for fields in odd:
        changed = tarfile.TarInfo("kernel")
        changed.size = header.size
        for name, value in fields.items():
            setattr(changed, name, value)
        content = true.replace(ours, changed.tobuf(tarfile.USTAR_FORMAT))
        with pytest.raises(UsageError, match="damaged"):
            import_guest(keep(tmp_path, gzip.compress(content, 1)), None, silent)
    assert_nothing_came(elsewhere)


def test_names_that_no_guest_has_are_refused(built: Path) -> None:
    text = zlib.decompress(parcel_of(built), 31)[512:].partition(b"\0")[0]
    content = json.loads(text)
    for name in ("../x", "modules/../x.ko", "/etc/passwd", "modules/a b.ko", "initrd", "kernel"):
        more = [*content["items"], {"name": name, "size": 1, "sha256": "0" * 64}]
        with pytest.raises(UsageError, match="damaged"):
            parse_manifest(json.dumps(content | {"items": more}).encode())
    for size in (-1, 1 << 50, 1.5, True, "1", None):
        more = [each | {"size": size} if each["name"] == "kernel" else each
                for each in content["items"]]  # fmt: skip
        with pytest.raises(UsageError, match="damaged"):
            parse_manifest(json.dumps(content | {"items": more}).encode())


def test_a_bomb_is_given_up_where_its_manifest_ends(
    elsewhere: Path, built: Path, tmp_path: Path
) -> None:
    """64 MiB of zeros behind the end, and in the place of the manifest: seconds at most."""
    bomb = zlib.compressobj(9, wbits=31)
    true = zlib.decompress(parcel_of(built), 31)
    zeros = bytes(1 << 20)
    content = bomb.compress(true) + b"".join(bomb.compress(zeros) for _ in range(64))
    began = time.process_time()
    for each, why in ((content + bomb.flush(), "behind its end"), (packed(zeros), "begin")):
        with pytest.raises(UsageError) as caught:
            import_guest(keep(tmp_path, each), None, silent)
        assert why in caught.value.why
    assert time.process_time() - began < 20
    assert_nothing_came(elsewhere)


def test_wrong_content_with_right_digests_is_refused(
    elsewhere: Path, built: Path, tmp_path: Path
) -> None:
    deep = b"[" * 30_000
    wrong = [("kernel", b"MZ an EFI image"), ("root.squashfs", b"ext4"), ("guest.json", deep)]
    for change in (
        {"suite": "trixie"},
        {"root_modules": {"ext4": ["$(reboot)"]}},
        {"root_modules": {"ext4": "all"}},
        {"kernel_release": "6.1\n"},
        {"kernel_release": 6},
    ):
        wrong.append(("guest.json", json.dumps(FACTS | change).encode()))
    for name, content in wrong:
        was = (built / name).read_bytes()
        (built / name).write_bytes(content)
        file = keep(tmp_path, parcel_of(built))
        (built / name).write_bytes(was)
        with pytest.raises(UsageError, match="damaged"):
            import_guest(file, None, silent)
    assert_nothing_came(elsewhere)


def test_a_file_that_was_not_asked_for_is_refused(
    elsewhere: Path, built: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="not the file that was asked for"):
        import_guest(keep(tmp_path, parcel_of(built)), "0" * 64, silent)
    assert_nothing_came(elsewhere)


def test_every_cut_and_flip_is_refused(elsewhere: Path, built: Path, tmp_path: Path) -> None:
    true = parcel_of(built)
    step = len(true) // 60
    for at in [*range(0, len(true), step), len(true) - 1]:
        flipped = bytearray(true)
        flipped[at] ^= 0x10
        for content in (true[:at], bytes(flipped)):
            try:
                import_guest(keep(tmp_path, content), None, silent)
            except UsageError:
                continue
            # What gzip notes of time and system, or another way to pack the same zeros.
            assert zlib.decompress(content, 31) == zlib.decompress(true, 31), at
    for more in (b"\0", true, b"x" * 3_000_000):
        with pytest.raises(UsageError, match="damaged"):
            import_guest(keep(tmp_path, true + more), None, silent)


@given(st.binary(max_size=400) | st.binary(max_size=400).map(gzip.compress))
def test_any_bytes_are_no_guest(content: bytes) -> None:
    with pytest.raises(UsageError):
        Parcel(io.BytesIO(content)).read_manifest()


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["format", "items", "base", "name", "size"]),
                                      inner), max_leaves=20))  # fmt: skip
def test_any_manifest_is_refused_or_read(content: object) -> None:
    begin = {"format": "diskproof-guest", "version": 1, "architecture": "x86_64"}
    given_ = {**begin, **content} if isinstance(content, dict) else content
    with pytest.raises(UsageError):
        parse_manifest(json.dumps(given_).encode())


def test_a_pipe_and_a_folder_are_no_file(elsewhere: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="cannot read"):
            import_guest(place, None, silent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_names_the_way_out_and_keeps_nothing(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space that goes while it is unpacked: what was announced would have fitted."""
    (built / "root.squashfs").write_bytes(b"hsqs" + os.urandom(3 << 20))
    file = keep(tmp_path, parcel_of(built))
    monkeypatch.setattr("diskproof.guest.ours.travel._INITRD_SPACE", 0)
    with start_memory_disk(tmp_path / "small", "size=4m") as small:
        move_to_host(monkeypatch, small, None)
        with pytest.raises(HostError, match="cannot write in") as caught:
            import_guest(file, None, lambda done, total: fill(small, done))
        assert "XDG_CACHE_HOME" in caught.value.hint
        (small / "filler").unlink()
        assert_nothing_came(cache_folder())
        move_to_host(monkeypatch, tmp_path / "builder")
        fill(small, 1)
        with pytest.raises(HostError, match="cannot write") as caught:
            export_guest(small / "guest.tar.gz", "", silent)
        assert "another file system" in caught.value.hint
        assert sorted(path.name for path in small.iterdir()) == ["diskproof", "filler"]


def fill(folder: Path, done: int) -> None:
    """Somebody else takes all that is left."""
    if done and not (folder / "filler").exists():
        with (folder / "filler").open("wb", buffering=0) as stream, suppress(OSError):
            while stream.write(bytes(1 << 16)):
                pass


KILLED = """
import sys
from pathlib import Path
from diskproof.guest.ours.travel import import_guest
def tell(done, total):
    print(done, flush=True)
    sys.stdin.read()
import_guest(Path(sys.argv[1]), None, tell)
"""


def test_a_killed_import_leaves_no_guest_and_the_next_one_sweeps(
    elsewhere: Path, built: Path, tmp_path: Path
) -> None:
    file = keep(tmp_path, parcel_of(built))
    argv = [sys.executable, "-c", KILLED, str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) > 0
        os.kill(child.pid, signal.SIGKILL)
    assert build.find_guest() is None
    (unfinished,) = (path.name for path in elsewhere.iterdir() if path.is_dir())
    assert unfinished.startswith("unfinished-")
    import_guest(file, None, silent)
    assert sorted(path.name for path in elsewhere.iterdir()) == sorted([built.name, "lock"])


def test_a_host_that_cannot_build_is_told_of_the_file(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HostError) as caught:
        build.build_guest()
    assert packages.OTHER_WAY in caught.value.hint
