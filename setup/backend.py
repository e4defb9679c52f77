"""How pip and others build us (PEP 517): what setuptools makes, and the programs of native/.

The same sources give the same bytes, wherever they lie and whoever builds them.
"""

import base64
import gzip
import hashlib
import io
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from natives import OF_CLONES, PARTS, ROOT, TOOLS, build_natives

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

LEAST_GLIBC = 17
"""What every installer that knows such platforms at all has: 2.17, of 2012."""
BEFORE_ANY_CLOCK = 315532800
"""1980, when a zip's time begins: seconds of the epoch."""
COMMIT = "diskproof/commit.txt"
"""What `diskproof --version --json` tells; sources that lie in no clone have it with them."""
STAGED = ROOT / "build"
"""Where setuptools gathers modules; it would pack those of an earlier day, too."""
_WHERE = {TOOLS: "scripts", PARTS: f"data/{PARTS}"}


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The wheel of setuptools, for this platform and with our programs."""
    shutil.rmtree(STAGED, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        pure = build_meta.build_wheel(folder, config_settings, metadata_directory)
        with zipfile.ZipFile(Path(folder, pure)) as source:
            contents = {each: source.read(each) for each in source.namelist()}
    contents.setdefault(COMMIT, find_commit())
    built = build_natives().items()
    natives = {place: path for place, path in built if path.name not in OF_CLONES}
    platform = f"manylinux_2_{_asked_glibc(natives.values())}_{os.uname().machine}"
    name = pure.replace("-any.whl", f"-{platform}.whl")
    stem = "-".join(name.split("-")[:2])
    wheel = f"{stem}.dist-info/WHEEL"
    contents[wheel] = contents[wheel].replace(b"py3-none-any", f"py3-none-{platform}".encode())
    contents[wheel] = contents[wheel].replace(b"Purelib: true", b"Purelib: false")
    for place, path in natives.items():
        folder_of_place, _, program = place.rpartition("/")
        contents[f"{stem}.data/{_WHERE[folder_of_place]}/{program}"] = path.read_bytes()
    _write_wheel(Path(wheel_directory, name), stem, contents)
    return name


def find_commit() -> bytes:
    """The commit that is built, with a newline and ``-dirty`` where files differ from it; empty
    where this is no clone."""
    if not (ROOT / ".git").exists():
        return b""
    argv = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout


def _asked_glibc(programs: Iterable[Path]) -> int:
    """N of the oldest C library 2.N that has all that the dynamic ones among them ask for."""
    argv = ["objdump", "--dynamic-syms", *programs]
    table = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return max([LEAST_GLIBC, *map(int, re.findall(r"\(GLIBC_2\.(\d+)", table))])


def _write_wheel(path: Path, stem: str, contents: dict[str, bytes]) -> None:
    record = f"{stem}.dist-info/RECORD"
    del contents[record]
    names = sorted(contents, key=lambda name: (".dist-info/" in name, name))
    rows = [*(_row(name, contents[name]) for name in names), f"{record},,\n"]
    contents[record] = "".join(rows).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name in (*names, record):
            entry = zipfile.ZipInfo(name)  # of 1980
            mode = 0o755 if ".data/" in name else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, contents[name])


def _row(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def build_sdist(sdist_directory: str, config_settings: dict[str, str] | None = None) -> str:
    """The sources as setuptools gathers them, of nobody and of no day."""
    with tempfile.TemporaryDirectory() as folder:
        name = build_meta.build_sdist(folder, config_settings)
        with (
            tarfile.open(Path(folder, name)) as source,
            Path(sdist_directory, name).open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, mtime=BEFORE_ANY_CLOCK) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
        ):
            contents = {entry.name: (entry, source.extractfile(entry)) for entry in source}
            commit = tarfile.TarInfo(f"{name.removesuffix('.tar.gz')}/src/{COMMIT}")
            commit.size = len(told := find_commit())
            contents.setdefault(commit.name, (commit, io.BytesIO(told)))
            for path, (entry, content) in sorted(contents.items()):
                plain = tarfile.TarInfo(path)
                plain.type, plain.size, plain.mtime = entry.type, entry.size, BEFORE_ANY_CLOCK
                plain.mode = 0o755 if entry.mode & 0o100 else 0o644
                target.addfile(plain, content)
    return name


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # a line for each file
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for build in (build_sdist, build_wheel):
        print(target / build(str(target)))
