"""Images made by the real qemu-img. Requires qemu-img; the full disk needs root (tmpfs)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.process.run_user import require_run_user
from diskproof.process.start import find_tool, run
from diskproof.qemu.images import create_image, ensure_fill_source, fill_image, inspect_image
from diskproof.records import Cell, WorkloadSpec
from support.memory_disks import start_memory_disk

pytestmark = pytest.mark.skipif(find_tool("qemu-img") is None, reason="needs qemu-img")
MIB = 1 << 20
SIZE = 32 * MIB

KINDS = [
    {"format": "raw", "preallocation": "off"},
    {"format": "raw", "preallocation": "falloc"},
    {"format": "raw", "preallocation": "full"},
    {"format": "qcow2", "preallocation": "off", "cluster_size": "64K", "lazy_refcounts": "on"},
    {"format": "qcow2", "preallocation": "metadata", "cluster_size": "2M"},
    {"format": "qcow2", "preallocation": "falloc", "cluster_size": "4K"},
    {"format": "qcow2", "preallocation": "full", "cluster_size": "64K"},
    {"format": "qed", "cluster_size": "128K"},
    {},
]


def cell(levels: dict[str, str]) -> Cell:
    return Cell(tuple(sorted(levels.items())), WorkloadSpec("w", "fio"))


def contents(image: DiskImage, folder: Path) -> bytes:
    """The disk as a guest would read it."""
    flat = folder / "flat"
    run(
        ["qemu-img", "convert", "-f", image.format, "-O", "raw", str(image.path), str(flat)],
        timeout=60,
    )
    return flat.read_bytes()


@pytest.mark.parametrize("levels", KINDS, ids=lambda kind: "-".join(kind.values()) or "host")
def test_an_image_is_what_was_asked_for_and_holds_what_it_is_filled_with(
    tmp_path: Path, levels: dict[str, str]
) -> None:
    asked = cell(levels)
    image = create_image(tmp_path, asked, SIZE)
    assert [check for check in inspect_image(image, asked) if not check.ok] == []
    assert image.path.stat().st_mode & 0o777 == 0o600
    if os.geteuid() == 0:
        assert image.path.stat().st_uid == require_run_user()
    source = ensure_fill_source(tmp_path, SIZE)
    fill_image(image, source)
    assert image.path.stat().st_blocks * 512 >= SIZE
    assert contents(image, tmp_path) == source.read_bytes()


@pytest.mark.parametrize(
    ("made", "asked", "wrong"),
    [
        ({"preallocation": "off"}, {"preallocation": "falloc"}, "image preallocation"),
        ({"preallocation": "falloc"}, {"preallocation": "full"}, "image preallocation"),
        ({"preallocation": "metadata"}, {"preallocation": "off"}, "image preallocation"),
        ({"cluster_size": "4K"}, {"cluster_size": "64K"}, "image cluster_size"),
        ({"lazy_refcounts": "on"}, {"lazy_refcounts": "off"}, "image lazy_refcounts"),
    ],
)
def test_an_image_that_is_something_else_is_found_out(
    tmp_path: Path, made: dict[str, str], asked: dict[str, str], wrong: str
) -> None:
    image = create_image(tmp_path, cell({"format": "qcow2", **made}), SIZE)
    checks = inspect_image(image, cell({"format": "qcow2", **asked}))
    assert wrong in [check.name for check in checks if not check.ok]


def test_a_header_that_a_guest_wrote_into_a_raw_image_is_not_believed(tmp_path: Path) -> None:
    asked = cell({"format": "raw", "preallocation": "off"})
    image = create_image(tmp_path, asked, SIZE)
    run(["qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "evil"), "1G"], timeout=60)
    with image.path.open("r+b") as stream:
        stream.write((tmp_path / "evil").read_bytes())
    sizes = [c.effective for c in inspect_image(image, asked) if c.name == "image size"]
    assert sizes == [str(SIZE)]


def test_what_qemu_img_refuses_is_a_failure_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as caught:
        create_image(tmp_path, cell({"format": "raw", "preallocation": "metadata"}), SIZE)
    assert caught.value.kind == "tool"
    assert "preallocation" in caught.value.why


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    with start_memory_disk(tmp_path / "small", "size=64M", required=False) as folder:
        yield folder


def test_no_space_before(small_disk: Path) -> None:
    with pytest.raises(RunFailure, match="no space") as caught:
        create_image(small_disk, cell({"format": "raw", "preallocation": "full"}), 128 * MIB)
    assert caught.value.kind == "space"
    assert list(small_disk.iterdir()) == []


def test_no_space_during(small_disk: Path, tmp_path: Path) -> None:
    """The room was there when the image was made, and gone when it was filled."""
    image = create_image(small_disk, cell({"format": "qcow2"}), SIZE)
    (small_disk / "other").write_bytes(bytes(48 * MIB))
    with pytest.raises(RunFailure) as caught:
        fill_image(image, ensure_fill_source(tmp_path, SIZE))
    assert caught.value.kind == "space"
