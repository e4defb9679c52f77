"""Images that cannot be used, made with qemu-img and held by a real qemu-nbd.

Requires qemu-img and qemu-nbd (qemu-utils).
"""

import os
import resource
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from diskproof.errors import HostError, UsageError
from diskproof.guest.own.image import open_own_image
from diskproof.process.cage import LOOK_MEMORY
from diskproof.process.start import run, start_process
from support.qemus import await_socket
from test_own_guest import make_own

SNAPSHOTS, SNAPSHOT_BYTES = 65_536, 40
CODE_BYTES = 64 << 20  # QEMU's programs and libraries are no data


def create(path: Path, *options: str, size: str = "8M") -> Path:
    run(["qemu-img", "create", "-q", *options, str(path), *([size] if size else [])], timeout=30)
    return path


def inspect(path: Path, **keys: Any) -> int:
    """The size of the image, after all that is looked at."""
    with open_own_image(make_own(image=str(path), **keys)) as found:
        return found.size


def test_an_image_is_followed_to_its_base_and_not_changed(tmp_path: Path) -> None:
    base = create(tmp_path / "base.raw", "-f", "raw")
    top = create(tmp_path / "top", "-f", "qcow2", "-b", "base.raw", "-F", "raw", size="")
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in (base, top)]
    with open_own_image(make_own(image=str(top))) as found:
        assert [(layer.path, layer.format) for layer in found.layers] == [
            (top, "qcow2"),
            (base, "raw"),
        ]
        assert found.size == 8 << 20 and found.chain == f"{top} (qcow2) on {base} (raw)"
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in (base, top)] == before


def test_an_image_in_use_is_refused(tmp_path: Path) -> None:
    image = create(tmp_path / "vm", "-f", "qcow2")
    argv = ["qemu-nbd", "-t", "-k", str(tmp_path / "socket"), "-f", "qcow2", str(image)]
    with start_process(argv, name="nbd", log=tmp_path / "log") as server:
        await_socket(tmp_path / "socket", server)
        with socket.socket(socket.AF_UNIX) as client:  # it listens before it opens the image
            client.connect(str(tmp_path / "socket"))
            assert client.recv(8) == b"NBDMAGIC"
        with pytest.raises(HostError, match="is in use") as caught:
            inspect(image)
        assert "lock" in caught.value.why and "shut down" in caught.value.hint
    assert inspect(image) == 8 << 20


def test_an_encrypted_image_is_refused(tmp_path: Path) -> None:
    # QEMU reports luks alike; to make one it times itself, which takes seconds and may fail.
    key = ["--object", "secret,id=s,data=sixteen-letters!", "-f", "qcow2"]
    image = create(tmp_path / "vm", *key, "-o", "encrypt.format=aes,encrypt.key-secret=s")
    with pytest.raises(UsageError, match="is encrypted"):
        inspect(image)


def test_bases_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    base = create(tmp_path / "base.raw", "-f", "raw")
    top = create(tmp_path / "top", "-f", "qcow2", "-b", str(base), "-F", "raw", size="")
    base.unlink()
    with pytest.raises(UsageError, match="is based on cannot be used") as caught:
        inspect(top)
    assert str(base) in caught.value.why
    run(["qemu-img", "rebase", "-u", "-F", "raw", "-b", "nbd://host/x", str(top)], timeout=30)
    with pytest.raises(UsageError, match="cannot be used"):
        inspect(top)
    run(["qemu-img", "rebase", "-u", "-F", "qcow2", "-b", str(top), str(top)], timeout=30)
    with pytest.raises(UsageError, match="more than 16 images"):
        inspect(top)


def test_a_base_that_is_a_loop_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    top = tmp_path / "vm.qcow2"
    create(top, "-f", "qcow2", "-u", "-b", "loop", "-F", "raw", size="64M")
    with pytest.raises(UsageError, match="is based on cannot be used"):
        inspect(top)


def test_a_base_that_the_image_chose_is_not_read(tmp_path: Path) -> None:
    """A foreign image names a file of the host: its guest would have it as its disk."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:*:1\n" * 512)
    (tmp_path / "images").mkdir()
    top = tmp_path / "images" / "vm.qcow2"
    (tmp_path / "images" / "link").symlink_to(secret)
    for named in (str(secret), "../secret", "link"):
        create(top, "-f", "qcow2", "-u", "-b", named, "-F", "raw", size="64M")
        with pytest.raises(UsageError, match="does not lie beside it") as caught:
            inspect(top)
        assert str(secret) in caught.value.hint and "bases" in caught.value.hint
        assert inspect(top, bases=(str(secret),)) == 64 << 20


def test_sudo_lends_no_right_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = create(tmp_path / "vm.qcow2", "-f", "qcow2")
    image.chmod(0o600)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    with pytest.raises(UsageError, match="cannot be read") as caught:
        inspect(image)
    assert "who called sudo" in caught.value.why


def test_a_link_in_place_of_an_image_is_refused(tmp_path: Path) -> None:
    """The study's names are resolved when it is read: what is a link later was put there."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(512))
    (tmp_path / "vm").symlink_to(secret)
    with pytest.raises(UsageError, match="it is not a file"):
        inspect(tmp_path / "vm", format="raw")


@pytest.mark.parametrize("name", ["kernel", "initrd"])
def test_sudo_lends_no_right_to_boot_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A guest can read its initial RAM disk."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:*:1\n")
    secret.chmod(0o600)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    image = create(tmp_path / "vm", "-f", "qcow2")
    with pytest.raises(UsageError, match="cannot be read"):
        inspect(image, **{name: str(secret)})


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="it is not a file|cannot be used"):
        inspect(tmp_path / "fifo")


def test_data_in_another_file_is_refused(tmp_path: Path) -> None:
    data = f"data_file={tmp_path / 'data'}"
    image = create(tmp_path / "vm", "-f", "qcow2", "-o", data)
    with pytest.raises(UsageError, match="keeps its data in another file"):
        inspect(image)


def test_an_image_that_takes_too_much_to_look_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65,536 snapshots over zeroes in a file that is a hole: QEMU makes a list of them all."""
    monkeypatch.setattr("diskproof.guest.own.image.LOOK_SECONDS", 3.0)
    image = create(tmp_path / "vm.qcow2", "-f", "qcow2")
    with image.open("r+b") as stream:
        table = -(-stream.seek(0, os.SEEK_END) >> 16) << 16
        stream.truncate(table + SNAPSHOTS * SNAPSHOT_BYTES)
        stream.seek(60)  # nb_snapshots, snapshots_offset
        stream.write(struct.pack(">IQ", SNAPSHOTS, table))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    with pytest.raises(UsageError, match="cannot be used") as caught:
        inspect(image)
    assert "3 s and 256 MiB to look at it" in caught.value.why
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    assert peak <= max(before, LOOK_MEMORY + CODE_BYTES)


@pytest.mark.parametrize("content", [bytes(1 << 20), b"QFI\xfb", b"", b"QFI\xfb" + b"\xff" * 600])
def test_what_is_no_such_image_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vm.qcow2").write_bytes(content)
    with pytest.raises(UsageError, match="is not a qcow2 image that can be read") as caught:
        inspect(tmp_path / "vm.qcow2")
    assert "qemu-img info tells" in caught.value.hint


def test_a_folder_is_no_image(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        inspect(tmp_path)
