"""What tiles take of the host."""

import os
from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.study.tile_file import parse_tile
from diskproof.tiles.host_side import HostReading, guest_use, most_tiles, read_use, require_memory
from support.tile_runs import PAIR

MEBIBYTE = 1 << 20


def test_too_many_tiles_are_refused_with_the_sum() -> None:
    """What just fits is let in; a byte less is not."""
    tile = parse_tile(PAIR, "pair.toml")
    one = next(size for size in range(1, 1 << 40, MEBIBYTE) if most_tiles(tile, size, "kvm"))
    needed = 3 * (one - 1)
    require_memory(tile, 3, needed, "kvm")
    assert most_tiles(tile, needed, "kvm") == 3
    with pytest.raises(RunFailure, match="3 tiles do not fit") as caught:
        require_memory(tile, 3, needed - 1, "kvm")
    assert caught.value.kind == "memory"
    assert "6 guests: 1.12 GiB of their own + 6 x" in caught.value.why
    assert caught.value.hint.startswith("at most 2 fit")
    assert most_tiles(tile, needed, "tcg") < 3, "an emulator keeps translated code as well"


def test_what_a_process_took(tmp_path: Path) -> None:
    """A name with a bracket and blanks, as anybody can give to a process."""
    folder = tmp_path / "77"
    folder.mkdir()
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(3 * ticks), str(ticks), *["0"] * 30]
    (folder / "stat").write_text(f"77 (a) b) {' '.join(fields)}\n")
    (folder / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n")
    (folder / "status").write_text("Name:\ta\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n")
    assert read_use(77, tmp_path) == HostReading(4.0, 4096, 8192, 2 * MEBIBYTE, 0)
    (folder / "ksm_merging_pages").write_text("3\n")
    assert read_use(77, tmp_path).merged_bytes == 3 * os.sysconf("SC_PAGE_SIZE")


def test_this_process() -> None:
    before = read_use(os.getpid())
    sum(range(10**6))
    use = guest_use(1, "us", before, read_use(os.getpid()))
    assert use.cpu_seconds >= 0 and use.memory_bytes > MEBIBYTE


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match="process 77 cannot be read") as caught:
        read_use(77, tmp_path)
    assert caught.value.kind == "qemu"
