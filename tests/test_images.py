"""Sizes, the fill source and what qemu-img says. Requires nothing but a file system with holes."""

import os
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.qemu.images import (
    count_data,
    ensure_fill_source,
    fill_image,
    find_preallocation,
    full_size,
    parse_info,
    require_space,
)

MIB = 1 << 20


@given(st.binary(max_size=200))
def test_any_answer_of_qemu_img_is_read_or_refused(text: bytes) -> None:
    try:
        assert isinstance(parse_info(text), dict)
    except RunFailure as failure:
        assert failure.kind == "tool"


@pytest.mark.parametrize("size", [MIB, 1 << 30, 1 << 40])
def test_full_size_covers_the_tables_of_the_smallest_clusters(size: int) -> None:
    tables = size // 512 * (8 + 2)
    assert full_size(size) > size + tables


def test_no_space_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as caught:
        require_space(tmp_path, 1 << 60)
    assert caught.value.kind == "space"
    assert "1 EiB" in caught.value.why
    with pytest.raises(RunFailure):
        ensure_fill_source(tmp_path, 1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_fill_source_is_the_same_each_time_and_has_no_zero_block(tmp_path: Path) -> None:
    size = MIB + 4096
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    content = ensure_fill_source(first, size).read_bytes()
    assert content == ensure_fill_source(second, size).read_bytes()
    assert len(content) == size
    assert all(any(content[at : at + 4096]) for at in range(0, size, 4096))
    assert len(zlib.compress(content)) > size
    assert [path.name for path in first.iterdir()] == [f"fill-{size}.raw"]


def test_fill_source_is_made_once_and_a_cut_one_again(tmp_path: Path) -> None:
    path = ensure_fill_source(tmp_path, MIB)
    made = path.stat().st_ino
    assert ensure_fill_source(tmp_path, MIB).stat().st_ino == made
    os.truncate(path, 5)
    assert ensure_fill_source(tmp_path, MIB).stat().st_size == MIB


def test_a_source_of_another_size_is_refused(tmp_path: Path) -> None:
    image = DiskImage(tmp_path / "disk.raw", "raw", 2 * MIB)
    with pytest.raises(ValueError, match="size"):
        fill_image(image, ensure_fill_source(tmp_path, MIB))


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_count_data_counts_what_was_written(tmp_path_factory, written: list[bool]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("holes") / "file"
    block = random.Random(1).randbytes(64 << 10)
    with path.open("wb") as stream:
        for number, there in enumerate(written):
            if there:
                stream.seek(number * len(block))
                stream.write(block)
        stream.truncate(len(written) * len(block))
    assert count_data(path) == sum(written) * len(block)


def test_preallocation_as_the_file_shows_it(tmp_path: Path) -> None:
    image = DiskImage(tmp_path / "disk.raw", "raw", MIB)
    image.path.touch()
    os.truncate(image.path, MIB)
    assert find_preallocation(image) == "off"
    with image.path.open("r+b") as stream:
        os.posix_fallocate(stream.fileno(), 0, MIB)
    assert find_preallocation(image) == "falloc"
    image.path.write_bytes(bytes(MIB))
    assert find_preallocation(image) == "full"
