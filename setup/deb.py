"""Debian packages, one for each release: setup/deb.py FOLDER, where the wheel is.

An environment belongs to the Python that it was made for, and Debian's releases have one each. The
same sources give the same bytes: all times are those of SOURCE_DATE_EPOCH, or of the last commit.
"""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from completions import write_completions
from deb_environment import PREFIX, ROOT, make_environment
from deb_texts import render_changelog, render_copyright
from diskproof import __version__
from help_text import TOOLS
from man_pages import write_pages
from third_parties import find_parts, render_licences

FILES = ROOT / "setup" / "debian"
RECOMMENDS = (
    *("fio", "mmdebstrap", "qemu-system-common", "qemu-system-x86", "qemu-utils"),
    *("squashfs-tools", "zstd"),
)
"""What measuring takes: not needed by the host tools, nor by who reads stores of others."""
SUGGESTS = ("crun", "e2fsprogs", "fuse3", "libvirt-clients", "qemu-block-extra", "xfsprogs")
OF_PACKAGES = {
    "libc6": r"lib(c|m|pthread|resolv|dl|rt|util)\.so\.\d+|ld-linux.*",
    "libgcc-s1": r"libgcc_s\.so\.1",
    "libstdc++6": r"libstdc\+\+\.so\.6",
    "zlib1g": r"libz\.so\.1",
}
"""Which of Debian's packages has a library that others are linked with."""
EFFORT = 1
"""Of xz: the usual 6 takes ten times as long for a tenth less."""
DESCRIPTION = """which virtual-disk settings are fast on a host, and which keep data
 Measures settings of virtual disks (cache mode, aio, format, bus and more) with
 QEMU, fio and real guests, ranks them with honest statistics, and judges what
 each of them loses when the power goes. With it come tools that stand alone: a
 monitor of disks and their flushes, sync calls that are traced or dropped, and
 commands that leave the page cache as it was.
 .
 It brings its own Python packages, in /opt/diskproof, for this release's Python
 alone: each release of Debian has its own package."""


@dataclass(frozen=True)
class Release:
    """A release of Debian: its number, its Python, and N of its C library 2.N."""

    name: str
    number: int
    python: str
    glibc: int


RELEASES = (Release("bookworm", 12, "3.11", 36), Release("trixie", 13, "3.13", 41))


def build_package(wheel: Path, target: Path, release: Release) -> Path:
    """``target``/diskproof_VERSION_ARCHITECTURE.deb."""
    version = f"{__version__}-1~deb{release.number}"
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    with tempfile.TemporaryDirectory(prefix="diskproof-deb-") as folder:
        stage = Path(folder)
        stage.chmod(0o755)
        packages = make_environment(stage, wheel, release.python, release.glibc)
        _add_usr(stage / "usr")
        _add_documents(stage / "usr/share", packages, version, release.name)
        _settle(stage)
        _add_control(stage, version, machine, release.python)
        path = target / f"diskproof_{version}_{machine}.deb"
        _pack_package(stage, path)
    return path


def _pack_package(stage: Path, path: Path) -> None:
    """As dpkg-deb does, but for one entry: of an /opt that is its own, dpkg takes away the link to
    where others have theirs (and an empty folder) when the package goes."""
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="diskproof-deb-") as folder:
        for argv in (
            ("dpkg-deb", "--root-owner-group", "-Znone", "--build", stage, "whole.deb"),
            ("ar", "x", "whole.deb"),
            ("tar", "--delete", "--no-recursion", "--file=data.tar", "./opt/"),
            # By two on any machine: by one, other bytes would come out.
            ("xz", f"-{EFFORT}", "--threads=2", "control.tar", "data.tar"),
            ("ar", "qcSD", path.resolve(), "debian-binary", "control.tar.xz", "data.tar.xz"),
        ):
            subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _add_usr(usr: Path) -> None:
    (usr / "bin").mkdir(parents=True)
    for name in ("diskproof", *TOOLS):
        (usr / "bin" / name).symlink_to(PREFIX / "bin" / name)
    write_completions(usr)
    for page in write_pages(usr / "share/man/man1"):
        _pack(page, page.read_text())


def _add_documents(share: Path, packages: Path, version: str, suite: str) -> None:
    documents = share / "doc/diskproof"
    documents.mkdir(parents=True)
    changes = (ROOT / "CHANGELOG.md").read_text()
    _pack(documents / "changelog", changes)
    rendered = render_changelog(changes, version, suite, maintainer(), epoch())
    _pack(documents / "changelog.Debian", rendered)
    parts = find_parts()
    _pack(documents / "third-party", render_licences(parts, __version__))
    text = (FILES / "copyright").read_text() + render_copyright(packages, parts)
    (documents / "copyright").write_text(text)
    overrides = share / "lintian/overrides"
    overrides.mkdir(parents=True)
    shutil.copyfile(FILES / "lintian-overrides", overrides / "diskproof")


def _pack(path: Path, text: str) -> None:
    """As NAME.gz, in place of the file."""
    path.unlink(missing_ok=True)
    with Path(f"{path}.gz").open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())


def _settle(stage: Path) -> None:
    """Everybody may read, nobody may write, and what may be run is what is run."""
    for path in stage.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
        elif not path.is_symlink():
            path.chmod(0o755 if path.parent.name == "bin" else 0o644)
    for guest in (stage / PREFIX.relative_to("/") / "libexec/diskproof").glob("diskproof-*"):
        guest.chmod(0o755)


def _add_control(stage: Path, version: str, machine: str, python: str) -> None:
    files = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    control = stage / "DEBIAN"
    control.mkdir(mode=0o755)
    fields = {
        "Package": "diskproof",
        "Version": version,
        "Architecture": machine,
        "Maintainer": maintainer(),
        "Installed-Size": str(sum(-(-path.stat().st_size // 1024) for path in files)),
        "Depends": ", ".join([f"python{python}", *_libraries(files)]),
        "Recommends": ", ".join(RECOMMENDS),
        "Suggests": ", ".join(SUGGESTS),
        "Section": "utils",
        "Priority": "optional",
        "Description": DESCRIPTION,
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (control / "control").write_text(text)
    sums = (f"{_digest(path)}  {path.relative_to(stage)}\n" for path in files)
    (control / "md5sums").write_text("".join(sums))
    for script in ("preinst", "postinst", "prerm", "postrm"):
        shutil.copyfile(FILES / script, control / script)
        (control / script).chmod(0o755)


def _digest(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _libraries(files: Iterable[Path]) -> Iterator[str]:
    """Debian's packages of the libraries that programs and libraries among the files ask for.

    Raises LookupError when it is not known which package has one.
    """
    linked = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    argv = ["objdump", "--private-headers", *linked]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    asked = set(re.findall(r"^\s+NEEDED\s+(\S+)", told, re.MULTILINE))
    foreign = asked - {path.name for path in linked}
    packages = {find_package(library) for library in foreign}
    oldest = max(map(int, re.findall(r"\bGLIBC_2\.(\d+)", told)))
    for package in sorted(packages):
        yield f"libc6 (>= 2.{oldest})" if package == "libc6" else package


def find_package(library: str) -> str:
    for package, pattern in OF_PACKAGES.items():
        if re.fullmatch(pattern, library):
            return package
    raise LookupError(f"which package of Debian has {library}? Please add it to OF_PACKAGES")


def maintainer(environment: Mapping[str, str] = os.environ) -> str:
    """As Debian's tools are told; else nobody in particular, who has no address."""
    name = environment.get("DEBFULLNAME", "diskproof maintainers")
    return f"{name} <{environment.get('DEBEMAIL', 'maintainers@diskproof.invalid')}>"


def epoch() -> int:
    """Seconds since 1970 that everything is dated with; of the last commit unless it is said."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    argv = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def _chosen(names: str) -> Iterator[Release]:
    """Those of the names, all when there are none."""
    wanted = names.split()
    yield from (each for each in RELEASES if not wanted or each.name in wanted)


def main(folder: Path) -> None:
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())  # dpkg-deb's and the manual's date
    os.umask(0o022)
    wheels = folder.glob(f"diskproof-{__version__}-*_{os.uname().machine}.whl")
    wheel = max(wheels, key=lambda path: path.stat().st_mtime)
    for release in _chosen(os.environ.get("RELEASES", "")):
        began = time.monotonic()
        path = build_package(wheel, folder, release)
        size = path.stat().st_size / 1e6
        print(f"{path} {size:.1f} MB in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
