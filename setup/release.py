"""All files of a release, in one folder: setup/release.py FOLDER (`make release`).

It refuses files that are in no commit, and a version without notes in CHANGELOG.md. The same commit
gives the same bytes on the same system.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from natives import ROOT

SUMS = "SHA256SUMS"
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
"""Of semver.org, without words on the build, which names of files do not bear."""


@dataclass(frozen=True)
class Release:
    """What every part is made from; ``seconds`` (Unix time) are of the commit."""

    version: str
    commit: str
    seconds: int
    notes: str


Make = Callable[[Release, Path], None]


def main(folder: Path) -> None:
    """Into a folder of its own first: what is not whole is no release."""
    release = prepare(ROOT)
    target = folder / f"diskproof-{release.version}"
    with tempfile.TemporaryDirectory(prefix=".release-", dir=_made(folder)) as place:
        made = Path(place)
        for name, make in PARTS.items():
            print(f"{name} ...", flush=True)
            make(release, made)
        made.joinpath(SUMS).write_text(render_sums(made))
        _require_clean(ROOT)  # what was built is what is in the commit
        _made(target)
        for old in target.iterdir():
            old.unlink()
        for path in sorted(made.iterdir()):
            path.chmod(0o644)
            path.rename(target / path.name)
    print(target, *sorted(path.name for path in target.iterdir()), sep="\n")
    if not any(ROOT.glob("LICEN[CS]E*")):
        print("Nobody has chosen a licence for diskproof itself; ask before you hand these on.")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def prepare(root: Path) -> Release:
    """SystemExit with the reason why there is none."""
    _require_clean(root)
    version = find_version(root)
    notes = cut_notes((root / "CHANGELOG.md").read_text(), version)
    commit, seconds = _git(root, "log", "-1", "--format=%H %ct").split()
    return Release(version, commit, int(seconds), notes)


def _require_clean(root: Path) -> None:
    if changed := _git(root, "status", "--porcelain"):
        raise SystemExit(f"these files are in no commit; commit or remove them first:\n{changed}")


def _git(root: Path, *words: str) -> str:
    argv = ["git", "-C", root, *words]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip()


def find_version(root: Path) -> str:
    """The one version of the Python package and of the native programs."""
    text = (root / "src/diskproof/__init__.py").read_text()
    version = next(iter(re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)), "")
    workspace = tomllib.loads((root / "native/Cargo.toml").read_text())["workspace"]
    native = workspace["package"]["version"]
    if version != native:
        raise SystemExit(f"src/diskproof is {version}, native/Cargo.toml is {native}")
    if not VERSION.fullmatch(version):
        raise SystemExit(f"{version} is no version of semver.org: MAJOR.MINOR.PATCH")
    return version


def cut_notes(changelog: str, version: str) -> str:
    """The section ``## VERSION (DATE)``, without its heading."""
    sections = re.split(r"^## +(.*?) *$", changelog, flags=re.MULTILINE)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    heading = re.compile(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)")
    named = [text.strip() for name, text in found.items() if heading.fullmatch(name)]
    if len(named) != 1 or not named[0]:
        raise SystemExit(
            f"CHANGELOG.md has no notes on {version}: a section `## {version} (YYYY-MM-DD)`\n"
            "What stands under Unreleased belongs there."
        )
    return f"# diskproof {version}\n\n{named[0]}\n"


def render_sums(folder: Path) -> str:
    """For `sha256sum --check`."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


# -- parts ----------------------------------------------------------------------------------


def _build_python(release: Release, folder: Path) -> None:
    subprocess.run([sys.executable, ROOT / "setup/backend.py", folder], check=True)


def _build_deb(release: Release, folder: Path) -> None:
    """By its own target, which asks for its tools."""
    subprocess.run(["make", "-C", ROOT, "deb"], check=True)
    packages = sorted((ROOT / "dist").glob(f"*_{release.version}*.deb"))
    if not packages:
        raise SystemExit(f"`make deb` left no package of {release.version} in dist/")
    for path in packages:
        (folder / path.name).write_bytes(path.read_bytes())


def _list_contents(release: Release, folder: Path) -> None:
    from sbom import check_sbom, render_sbom
    from third_parties import find_parts, render_licences

    parts = find_parts()
    text = render_sbom(release.version, release.commit, release.seconds, parts)
    stem = f"diskproof-{release.version}"
    (folder / f"{stem}.cdx.json").write_text(check_sbom(text))
    (folder / f"{stem}-third-party.txt").write_text(render_licences(parts, release.version))


def _copy_schemas(release: Release, folder: Path) -> None:
    """Those of docs/schemas in one file, so that one digest vouches for all."""
    path = folder / f"diskproof-{release.version}-schemas.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted((ROOT / "docs/schemas").iterdir()):
            entry = tarfile.TarInfo(f"schemas/{file.name}")
            entry.size, entry.mtime = file.stat().st_size, release.seconds
            with file.open("rb") as content:
                archive.addfile(entry, content)


def _write_notes(release: Release, folder: Path) -> None:
    (folder / f"diskproof-{release.version}.md").write_text(release.notes)


PARTS: Mapping[str, Make] = {
    "wheel and sources": _build_python,
    "Debian package": _build_deb,
    "SBOM and licences": _list_contents,
    "JSON Schemas": _copy_schemas,
    "notes": _write_notes,
}
"""A further kind of file is a row here."""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
