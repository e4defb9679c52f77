"""A name that somebody else chose leads to a file, or to nothing that is opened."""

import os
import socket
from pathlib import Path

import pytest

from diskproof.host.machines.libvirt import _read_bounded
from diskproof.host.machines.proxmox import _read_text
from diskproof.host.machines.qemu_process import QemuProcess
from diskproof.process.open_files import OpenFile
from diskproof.process.plain_file import open_plain, read_plain
from diskproof.process.start import run


def odd(folder: Path, what: str) -> Path:
    path = folder / "odd"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif what == "gone":
        path.symlink_to(folder / "nothing")
    else:
        path.symlink_to("/dev/zero")
    return path


ODD = pytest.mark.parametrize("what", ["fifo", "folder", "socket", "gone", "device"])


@ODD
def test_nothing_but_a_file_is_opened(tmp_path: Path, what: str) -> None:
    """Nobody writes to the FIFO: to open it would wait for ever."""
    with pytest.raises(OSError, match="not a file|No such"):
        open_plain(odd(tmp_path, what))


def test_a_file_is_read_and_a_link_followed_where_that_is_asked(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"12345")
    link.symlink_to(file)
    assert read_plain(file, 3) == b"123" and read_plain(link, 9) == b"12345"
    with pytest.raises(OSError, match="not a file"):
        open_plain(link, links=False)


@ODD
def test_what_a_machine_or_its_manager_names_holds_no_audit_up(tmp_path: Path, what: str) -> None:
    path = odd(tmp_path, what)
    assert QemuProcess(os.getpid(), ()).read_file(str(path)) is None
    assert _read_bounded(path) is None
    with pytest.raises(OSError, match="not a file|No such"):
        _read_text(path)


def test_what_an_image_names_is_said_and_not_opened(tmp_path: Path) -> None:
    """A FIFO as the base: whoever opens it would wait for ever, and qemu-img info asks for it."""
    base, image = tmp_path / "base", tmp_path / "vm.qcow2"
    os.mkfifo(base)
    argv = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-b", str(base), "-F", "raw"]
    run([*argv, str(image), "64M"], timeout=30)
    with image.open("r+b") as stream:
        info = os.fstat(stream.fileno())
        key = (info.st_dev, info.st_ino)
        file = OpenFile(stream.fileno(), str(image), os.O_RDWR, key, block=False, deleted=False)
        assert QemuProcess(os.getpid(), ()).read_backing(file) == str(base)
        with base.open("r+b", buffering=0) as both:  # the other number became a FIFO meanwhile
            file = OpenFile(both.fileno(), str(image), os.O_RDWR, key, block=False, deleted=False)
            assert QemuProcess(os.getpid(), ()).read_backing(file) == ""
