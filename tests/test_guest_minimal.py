"""A guest of what the host has: its image, its programs, its kernel, and what is told of it."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.errors import HostError
from diskproof.guest.ours import build, kernel, minimal
from diskproof.guest.ours.squashfs import write_squashfs
from diskproof.host.identity import host_record
from diskproof.process.start import find_tool
from support.guest_parcels import KERNEL, move_to_host

NAMES = st.text("abcXYZ09._-", min_size=1, max_size=20).filter(lambda name: name.strip("."))
TREES = st.recursive(
    st.binary(max_size=300) | st.integers(131_000, 132_000).map(bytes) | st.just("link"),
    lambda below: st.dictionaries(NAMES, below, max_size=8),
    max_leaves=20,
)


def plant(folder: Path, tree: object) -> None:
    folder.mkdir()
    for name, below in tree.items() if isinstance(tree, dict) else ():
        if isinstance(below, bytes):
            (folder / name).write_bytes(below)
        elif below == "link":
            (folder / name).symlink_to("../elsewhere")
        else:
            plant(folder / name, below)


def listed(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (
            str(path.readlink()) if path.is_symlink() else path.is_file() and path.read_bytes(),
            path.lstat().st_mode,
        )
        for path in folder.rglob("*")
    }


@settings(max_examples=25)
@given(tree=TREES)
def test_any_folder_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, tree: object
) -> None:
    place = tmp_path_factory.mktemp("squashfs")
    plant(place / "in", tree)
    unpack(place)
    assert listed(place / "out") == listed(place / "in")


def unpack(place: Path) -> None:
    write_squashfs(place / "in", place / "image")
    argv = ["unsquashfs", "-q", "-n", "-d", str(place / "out"), str(place / "image")]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def test_many_names_and_long_files_take_several_blocks(tmp_path: Path) -> None:
    plant(tmp_path / "in", {f"name-{number}": b"x" * number for number in range(400)})
    (tmp_path / "in" / "long").write_bytes(os.urandom(1_000_000))
    unpack(tmp_path)
    assert listed(tmp_path / "out") == listed(tmp_path / "in")


def test_programs_come_with_all_that_they_load(tmp_path: Path) -> None:
    """They run with nothing but the copy as their root."""
    programs = {name: str(find_tool(name)) for name in ("sh", "cat")}
    minimal.copy_programs(tmp_path / "root", programs)
    loader, *_ = (path for path in minimal.find_libraries("/bin/cat") if "ld-linux" in path.name)
    folders = {str(tmp_path / f"root{path.parent}") for path in minimal.find_libraries("/bin/cat")}
    argv = [str(tmp_path / f"root{loader}"), "--library-path", ":".join(folders)]
    argv += [str(tmp_path / "root/usr/bin/cat"), "/proc/self/maps"]
    maps = subprocess.check_output(argv, text=True)
    loaded = {line.split()[5] for line in maps.splitlines() if ".so" in line}
    assert loaded and all(path.startswith(str(tmp_path)) for path in loaded)


def test_the_running_kernel_is_taken_else_the_newest_that_is_whole(tmp_path: Path) -> None:
    boot, modules = tmp_path / "boot", tmp_path / "modules"
    boot.mkdir()
    with pytest.raises(HostError, match="no kernel for a guest") as caught:
        minimal.find_host_kernel(boot, modules)
    assert "--kernel FILE --modules FOLDER" in caught.value.hint
    for release in ("6.1.0-1", "6.5.0-1", os.uname().release):
        (modules / release).mkdir(parents=True)
        (boot / f"vmlinuz-{release}").write_bytes(KERNEL)
        if release != "6.5.0-1":
            (modules / release / "modules.builtin").write_text("")
    assert minimal.find_host_kernel(boot, modules).modules.name == os.uname().release
    (boot / f"vmlinuz-{os.uname().release}").unlink()
    assert minimal.find_host_kernel(boot, modules).modules.name == "6.1.0-1"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> build.GuestFiles:
    """A minimal guest of a kernel that has the drives built in and no file system."""
    move_to_host(monkeypatch, tmp_path / "cache")
    folder = tmp_path / "6.1.0-9"
    folder.mkdir()
    drivers = (*kernel.CHANNEL, *kernel.DRIVES)
    (folder / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in drivers))
    (tmp_path / "vmlinuz").write_bytes(KERNEL)
    monkeypatch.setattr(minimal, "USEFUL", {"mkfs.none": "a file system that is none"})
    return minimal.build_minimal(minimal.HostKernel(tmp_path / "vmlinuz", folder), lambda _: None)


def test_it_is_the_guest_where_there_is_no_other_and_says_what_it_lacks(
    made: build.GuestFiles,
) -> None:
    assert build.find_guest() == made and made.id.startswith("minimal-")
    assert build.find_whole() is None and build.find_guest("postgres") is None
    assert made.lacks[:2] == ("mkfs.none (a file system that is none)", "module ext4")
    assert {*minimal.NEEDED, "module nvme"} <= made.has and "module ext4" not in made.has


def test_its_figures_are_of_another_host(
    made: build.GuestFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = host_record("tcg", "")
    assert small.facts["guest"] == "minimal"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    usual = host_record("tcg", "")
    assert "guest" not in usual.facts and usual.id != small.id


def test_a_kernel_without_what_every_guest_needs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "6.1").mkdir()
    (tmp_path / "6.1/modules.builtin").write_text("kernel/drivers/virtio_pci.ko\n")
    (tmp_path / "vmlinuz").write_bytes(KERNEL)
    with pytest.raises(HostError, match="has no module"):
        found = minimal.HostKernel(tmp_path / "vmlinuz", tmp_path / "6.1")
        minimal.build_minimal(found, lambda _: None)
    assert build.find_guest() is None
