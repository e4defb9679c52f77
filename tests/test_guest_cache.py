"""What is in the cache is whole."""

import os
import stat
import threading
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.guest.ours import build, packages
from diskproof.guest.ours import cache_folder as cache
from diskproof.process import native


def test_the_cache_folder_follows_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache.cache_folder() == Path("/elsewhere/diskproof/guest")
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache.cache_folder() == Path("/home/someone/.cache/diskproof/guest")


def test_a_folder_appears_whole_and_readable(tmp_path: Path) -> None:
    final = tmp_path / "final"
    before = os.umask(0o077)
    try:
        with cache.new_folder(final) as folder:
            (folder / "kernel").write_bytes(b"k")
            (folder / "modules").mkdir()
            assert not final.exists()
    finally:
        os.umask(before)
    assert stat.S_IMODE((final / "kernel").stat().st_mode) == 0o644
    assert stat.S_IMODE((final / "modules").stat().st_mode) == 0o755
    assert stat.S_IMODE(final.stat().st_mode) == 0o755


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        with cache.new_folder(tmp_path / "final") as folder:
            (folder / "kernel").write_bytes(b"k")
            raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_killed_builders_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "unfinished-a" / "scratch").mkdir(parents=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "unfinished-b").write_bytes(b"half an initramfs")
    (tmp_path / "whole" / "kernel").write_bytes(b"k")
    cache.remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kernel", "whole"]


def test_a_file_appears_whole_and_replaces(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        cache.write_file(tmp_path / "initrd", content)
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [content]


def test_one_builder_at_a_time(tmp_path: Path) -> None:
    told = threading.Event()
    order: list[str] = []

    def second() -> None:
        with cache.build_lock(tmp_path, lambda _: told.set()):
            order.append("second")

    with cache.build_lock(tmp_path, lambda _: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert told.wait(20)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]


def test_no_space_is_said_before(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no space") as caught:
        cache.require_space(tmp_path, 1 << 60)
    assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        ('ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian"\n', "bookworm"),
        ('ID="debian"\nVERSION_CODENAME="trixie"\n', "trixie"),
        ("ID=fedora\nVERSION_CODENAME=x\n", None),
        ("ID=debian\n", None),
        ("", None),
    ],
)
def test_suite(text: str, suite: str | None, tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text(text)
    assert packages.find_suite(tmp_path / "os-release") == suite
    assert packages.find_suite(tmp_path / "missing") is None


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def programs(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """All that a guest is built of is there, the guest is not."""
    found = [tmp_path / name for name in (build.AGENT, *build.PROGRAMS)]
    for path in found:
        path.write_bytes(b"a program")
    monkeypatch.setattr(native, "native_folders", lambda: (tmp_path,))
    monkeypatch.setattr(packages, "find_suite", lambda: "bookworm")
    return found


@pytest.mark.usefixtures("programs")
def test_no_guest_names_the_command() -> None:
    assert build.find_guest() is None
    with pytest.raises(HostError, match="not built") as caught:
        build.require_guest()
    assert caught.value.hint == "diskproof guest build"
    with pytest.raises(HostError, match="the guest with postgres is not built") as caught:
        build.require_guest("postgres")
    assert caught.value.hint == "diskproof guest build --with postgres"


@pytest.mark.usefixtures("programs")
def test_a_guest_with_more_is_another_and_leaves_the_ordinary_one_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert packages.packages_of("") == packages.PACKAGES
    assert packages.packages_of("postgres") == (*packages.PACKAGES, "postgresql")
    sought: list[Path] = []
    monkeypatch.setattr(os, "access", lambda path, mode: sought.append(path) or False)
    for extra in ("", *packages.EXTRA_PACKAGES):
        assert build.find_guest(extra) is None
    initrds = [path for path in sought if path.suffix == ".cpio"]
    assert len({path.parent for path in initrds}) == 1 + len(packages.EXTRA_PACKAGES)


def test_a_program_that_changed_makes_another_guest(
    programs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sought: list[Path] = []
    monkeypatch.setattr(os, "access", lambda path, mode: sought.append(path) or False)
    build.find_guest()
    for path in programs:
        path.write_bytes(b"a program that changed")
        build.find_guest()
    initrds = {path for path in sought if path.suffix == ".cpio"}
    assert len(initrds) == 1 + len(programs)
    assert len({path.parent for path in initrds}) == 1  # the root stays as it was


@pytest.mark.parametrize(
    ("missing", "package"), [("mmdebstrap", "mmdebstrap"), ("mksquashfs", "squashfs-tools")]
)
@pytest.mark.usefixtures("programs")
def test_a_missing_tool_names_its_package(
    missing: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty PATH but for what is not missing; these tools are in none of the sbin folders."""
    present = tmp_path / "bin"
    present.mkdir()
    for name in {"mmdebstrap", "mksquashfs"} - {missing}:
        (present / name).write_text("#!/bin/false\n")
        (present / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(present))
    with pytest.raises(HostError, match=f"{missing} is not installed") as caught:
        build.build_guest()
    assert caught.value.hint == f"apt-get install {package}; {packages.OTHER_WAY}"
    assert [path.name for path in cache.cache_folder().iterdir()] == ["lock"]


def test_missing_agent_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "native_folders", lambda: ())
    with pytest.raises(HostError, match="diskproof-agent is not there") as caught:
        build.build_guest()
    assert caught.value.hint == "make setup"
