"""The wheel and the sources: the same bytes from any path, and nothing of an earlier day.

Programs are taken as they are built; that building them twice gives the same ones takes minutes and
is held by tests/install.
"""

import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from diskproof.process import start as proc
from diskproof.process.native import native_folders, require_native
from natives import OF_CLONES

ROOT = Path(__file__).parent.parent
PACKED = ("diskproof-tree", "diskproof-sync-ways-dynamic")
BUILD = """
import logging, sys
from pathlib import Path
sys.path.insert(0, "setup")
import backend
logging.disable(logging.WARNING)
target, *built = sys.argv[1:]
backend.build_natives = lambda: {f"bin/{Path(each).name}": Path(each) for each in built}
print(backend.build_sdist(target), backend.build_wheel(target))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Sources and wheel of a tidy tree, then of one elsewhere, that has been lived in."""
    listing = proc.run(["git", "ls-files", "-z"], timeout=30, cwd=ROOT).text
    wanted = ("src/", "setup/", "native/", "pyproject.toml", "MANIFEST.in")
    names = [each for each in listing.split("\0") if each.startswith(wanted) or "/" not in each]
    files = []
    for name, umask in (("tidy", 0o022), ("a longer path, lived in", 0o077)):
        tree = tmp_path_factory.mktemp(name)
        before = os.umask(umask)
        try:
            for path in (Path(each) for each in names if each and (ROOT / each).is_file()):
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, tree / path)
                (tree / path).chmod((ROOT / path).stat().st_mode & ~umask)
            if umask == 0o077:
                _live_in(tree)
            argv = [sys.executable, "-c", BUILD, tree / "out"]
            argv += map(require_native, (*PACKED, *OF_CLONES))
            (tree / "out").mkdir()
            told = proc.run([*map(str, argv)], timeout=300, cwd=tree).text
        finally:
            os.umask(before)
        files += [tree / "out" / each for each in told.split()]
    return files


def _live_in(tree: Path) -> None:
    for name in ("build/lib/diskproof/gone.py", "src/diskproof/__pycache__/gone.pyc", "dist/old"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("of an earlier day")


def test_two_paths_give_the_same_bytes(built: Sequence[Path]) -> None:
    sources, wheel, sources_again, wheel_again = built
    assert sources.name == sources_again.name and wheel.name == wheel_again.name
    assert sources.read_bytes() == sources_again.read_bytes()
    assert wheel.read_bytes() == wheel_again.read_bytes()


def test_the_wheel_holds_programs_that_may_be_started(built: Sequence[Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        entries = {each.filename.rpartition("/")[2]: each for each in wheel.infolist()}
        for name in PACKED:
            assert entries[name].external_attr >> 16 == 0o100755
            assert wheel.read(entries[name]) == require_native(name).read_bytes()
        assert wheel.testzip() is None
        assert OF_CLONES and not set(OF_CLONES) & set(entries)


def test_the_sources_are_enough_to_build_again(built: Sequence[Path]) -> None:
    with tarfile.open(built[0]) as sources:
        names = {each.name.partition("/")[2] for each in sources}
    needed = ("setup/backend.py", "setup/cargo", "native/Cargo.lock", "native/.cargo/config.toml")
    assert {*needed, "native/rustc-static", "pyproject.toml"} <= names


def test_no_program_tells_where_it_was_built() -> None:
    """Else two clones would not be equal, and strangers would read our paths."""
    programs = [
        path
        for folder in native_folders()[:2]
        for pattern in ("diskproof-*", "lib*.so")
        for path in folder.glob(pattern)
        if path.read_bytes()[:4] == b"\x7fELF"
    ]
    assert len(programs) > 10
    homes = {str(Path(sys.prefix).parent), str(Path.home() / ".cargo"), "/.cargo/registry"}
    told = [
        (path.name, home)
        for path in programs
        for home in homes
        if home.encode() in path.read_bytes()
    ]
    assert told == []
