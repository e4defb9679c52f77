"""An environment as the Debian package carries it: what requirements.lock and our wheel hold, for
the Python of a Debian release, which need not be the one that builds it."""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIX = Path("/opt/diskproof")
LEFT_OUT = ("parquet",)
"""Extras that are not worth their size to everybody."""
_OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")
# The interpreter answers a Ctrl-C in its own first moments badly: it is kept waiting (setup/venv).
_SHEBANG = f"#!/usr/bin/env -S --block-signal=INT {PREFIX}/bin/python3\n"


def make_environment(stage: Path, wheel: Path, python: str, glibc: int) -> Path:
    """Below ``stage``, for Python such as ``3.11`` and a C library 2.``glibc``; returns the folder
    of its packages. Raises CalledProcessError when pip cannot, which has said why."""
    prefix = stage / PREFIX.relative_to("/")
    packages = prefix / "lib" / f"python{python}" / "site-packages"
    _fetch(packages, wheel, python, glibc)
    for place in ("bin", "libexec"):
        shutil.move(packages / place, prefix / place)
    for other in (packages / "share", packages / "include"):
        shutil.rmtree(other, ignore_errors=True)
    _tell_who_installs(packages)
    _make_programs(prefix / "bin", python)
    version = f"version = {python}\n"
    settings = "home = /usr/bin\ninclude-system-site-packages = false\n"
    (prefix / "pyvenv.cfg").write_text(settings + version)
    return packages


def _fetch(packages: Path, wheel: Path, python: str, glibc: int) -> None:
    machine = wheel.stem.rpartition("manylinux_")[2].split("_", 2)[2]
    modern = [f"manylinux_2_{each}" for each in range(glibc, 4, -1)]
    wanted = packages.parent / "wanted.txt"
    wanted.parent.mkdir(parents=True)
    wanted.write_text("".join(_requirements(wheel)))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile"),
            *("--python-version", python, "--implementation", "cp"),
            *("--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"),
            *(f"--platform={each}_{machine}" for each in (*modern, *_OLD_NAMES)),
            *("--platform=any", "--target", packages, "-r", wanted),
        ],
        check=True,
    )
    wanted.unlink()


def _requirements(wheel: Path) -> Iterator[str]:
    """Lines for pip: each with its hashes, our wheel too."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    yield f"diskproof @ {wheel.resolve().as_uri()} --hash=sha256:{digest}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    unwanted = [*project["dependency-groups"]["build"], *(extras[name][0] for name in LEFT_OUT)]
    names = {re.split(r"[>=\[]", each)[0] for each in unwanted}
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        name, _, rest = line.partition("==")
        if not rest or name in names:
            continue
        if re.search(r";.*python_", line):
            raise ValueError(f"pip would ask the Python that builds, not the one meant: {line}")
        yield f"{line}\n"


def _tell_who_installs(packages: Path) -> None:
    """Of pip's notes remain those that are true on another machine: dpkg knows all files."""
    for info in packages.glob("*.dist-info"):
        for note in ("RECORD", "REQUESTED", "direct_url.json"):
            (info / note).unlink(missing_ok=True)
        (info / "INSTALLER").write_text("dpkg\n")


def _make_programs(folder: Path, python: str) -> None:
    for program in folder.iterdir():
        if not program.name.startswith("diskproof"):
            program.unlink()
    (folder / "python3").symlink_to(f"/usr/bin/python{python}")
    start = folder / "diskproof"
    _, rest = start.read_text().split("\n", 1)
    start.write_text(_SHEBANG + rest)
