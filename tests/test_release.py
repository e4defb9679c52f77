"""What a release consists of, and what it refuses. Requires git, cargo with the crates that the
native programs are built from, and a C compiler of Debian's."""

import hashlib
import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from diskproof import __version__
from diskproof.process import start as proc

ROOT = Path(__file__).parent.parent
CHANGELOG = """# Changelog

## Unreleased

- Not yet.

## 1.2.0 (2026-11-30)

- A new verb.
  It goes on here.

### For those who package it
- Another file.

## 1.1.0 (2026-10-01)

- Before.
"""


@pytest.fixture(scope="module")
def release_script() -> Iterator[ModuleType]:
    """setup/release.py, whose neighbours it finds as a script does."""
    sys.path.insert(0, str(ROOT / "setup"))
    try:
        yield importlib.import_module("release")
    finally:
        sys.path.remove(str(ROOT / "setup"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the files that a release asks for its version and its notes."""
    for name in ("src/diskproof/__init__.py", "native/Cargo.toml", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.replace("1.2.0", __version__))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=one")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"]
    return proc.run(["git", "-C", str(folder), *who, *words], timeout=60).text.strip()


# -- notes ----------------------------------------------------------------------------------


def test_notes_are_the_section_of_their_version(release_script: ModuleType) -> None:
    notes = release_script.cut_notes(CHANGELOG, "1.2.0")
    assert notes == (
        "# diskproof 1.2.0\n\n- A new verb.\n  It goes on here.\n\n"
        "### For those who package it\n- Another file.\n"
    )
    assert "Before." in release_script.cut_notes(CHANGELOG, "1.1.0")


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.3.0", CHANGELOG),
        ("1.2", CHANGELOG),
        ("1.2.0", CHANGELOG.replace(" (2026-11-30)", "")),
        ("1.2.0", CHANGELOG.replace("1.1.0 (2026-10-01)", "1.2.0 (2026-10-01)")),
        ("1.2.0", "## 1.2.0 (2026-11-30)\n\n\n## 1.1.0 (2026-10-01)\n- Before.\n"),
        ("1.2.0", "## 1x2x0 (2026-11-30)\n- Dots are dots.\n"),
        ("Unreleased", CHANGELOG),
        ("1.2.0", ""),
    ],
    ids=["other", "part", "no date", "twice", "empty", "pattern", "unreleased", "no file"],
)
def test_a_version_without_notes_is_refused(
    release_script: ModuleType, version: str, text: str
) -> None:
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no notes"):
        release_script.cut_notes(text, version)


# -- what is refused ------------------------------------------------------------------------


def test_a_clean_clone_with_notes_is_a_release(release_script: ModuleType, clone: Path) -> None:
    release = release_script.prepare(clone)
    assert release.version == __version__
    assert release.commit == git(clone, "rev-parse", "HEAD")
    assert release.seconds == int(git(clone, "log", "-1", "--format=%ct"))
    assert "A new verb." in release.notes


@pytest.mark.parametrize("name", ["CHANGELOG.md", "further"])
def test_files_that_are_in_no_commit_are_refused(
    release_script: ModuleType, clone: Path, name: str
) -> None:
    with (clone / name).open("a") as file:
        file.write("more\n")
    with pytest.raises(SystemExit, match=f"in no commit.*\n.*{name}"):
        release_script.prepare(clone)


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        ("native/Cargo.toml", f'"{__version__}"', '"9.9.9"', r"native/Cargo.toml is 9\.9\.9"),
        ("CHANGELOG.md", f"## {__version__} ", "## 8.8.8 ", "has no notes"),
    ],
)
def test_versions_that_differ_are_refused(
    release_script: ModuleType, clone: Path, name: str, old: str, new: str, why: str
) -> None:
    text = (clone / name).read_text()
    assert old in text
    (clone / name).write_text(text.replace(old, new, 1))
    git(clone, "commit", "--all", "--quiet", "--message=two")
    with pytest.raises(SystemExit, match=why):
        release_script.prepare(clone)


@pytest.mark.parametrize("version", ["1.2", "1.2.3.4", "01.2.3", "1.2.3+build", "v1.2.3", ""])
def test_only_versions_of_semver(release_script: ModuleType, clone: Path, version: str) -> None:
    for name in ("src/diskproof/__init__.py", "native/Cargo.toml"):
        text = (clone / name).read_text().replace(f'"{__version__}"', f'"{version}"', 1)
        (clone / name).write_text(text)
    with pytest.raises(SystemExit, match="no version of semver"):
        release_script.find_version(clone)


def test_our_own_version_is_one(release_script: ModuleType) -> None:
    assert release_script.find_version(ROOT) == __version__


def test_the_readme_installs_a_wheel_of_this_version() -> None:
    first = re.search(r"```console\n(.*)", (ROOT / "README.md").read_text())
    assert first and f"pipx install ./diskproof-{__version__}-py3-none-manylinux_" in first[1]


def test_the_command_says_why_and_makes_nothing(release_script: ModuleType, clone: Path) -> None:
    shutil.copytree(ROOT / "setup", clone / "setup", ignore=shutil.ignore_patterns("__pycache__"))
    argv = [sys.executable, clone / "setup/release.py", clone / "dist"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("these files are in no commit") and "setup/" in done.stderr
    assert not (clone / "dist").exists()


def test_checksums_are_those_of_sha256sum(release_script: ModuleType, tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    (tmp_path / "SHA256SUMS").write_text(release_script.render_sums(tmp_path))
    argv = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert proc.run(argv, timeout=10, cwd=tmp_path).text.splitlines() == ["a: OK", "b: OK"]


# -- what is inside -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(release_script: ModuleType) -> list:  # type: ignore[type-arg]
    return importlib.import_module("third_parties").find_parts()


def test_the_sbom_is_cyclonedx_and_the_same_each_time(
    release_script: ModuleType,
    parts: list,  # type: ignore[type-arg]
) -> None:
    sbom = importlib.import_module("sbom")
    first, second = (sbom.render_sbom("1.2.0", "abc", 1_700_000_000, parts) for _ in range(2))
    assert first == second
    with pytest.raises(SystemExit, match="no CycloneDX"):
        sbom.check_sbom('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [1]}')
    told = json.loads(sbom.check_sbom(first))
    by_name = {each["name"]: each for each in told["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for asked in map(Requirement, project["dependencies"]):
        found = by_name[canonicalize_name(asked.name)]
        assert found["scope"] == "required" and asked.specifier.contains(found["version"])
        assert found["purl"] == f"pkg:pypi/{found['name']}@{found['version']}"
        assert found["licenses"] and found["externalReferences"][0]["hashes"]
    assert by_name["pyarrow"]["scope"] == "optional"
    for foreign in ("pytest", "pip", "jsonschema", "proptest", "serde_derive"):
        assert foreign not in by_name
    needed = {each["ref"]: each.get("dependsOn", []) for each in told["dependencies"]}
    assert {by_name["scipy"]["bom-ref"], by_name["rustix"]["bom-ref"]} <= {*needed["diskproof"]}
    assert by_name["numpy"]["bom-ref"] in needed[by_name["scipy"]["bom-ref"]]
    assert told["metadata"]["component"]["licenses"] == [{"license": {"name": "NOASSERTION"}}]


def test_what_is_linked_is_in_the_lock_with_its_digest_and_licence(
    parts: list,  # type: ignore[type-arg]
) -> None:
    lock = tomllib.loads((ROOT / "native/Cargo.lock").read_text())["package"]
    locked = {(each["name"], each["version"]): each.get("checksum") for each in lock}
    crates = [part for part in parts if part.kind == "cargo"]
    assert {"serde", "rustix", "libc", "fuser", "clap"} <= {part.name for part in crates}
    for crate in crates:
        assert re.fullmatch("[0-9a-f]{64}", crate.sha256)
        assert locked[crate.name, crate.version] == crate.sha256
        assert crate.licence and crate.texts
    others = {part.name: part.licence for part in parts if part.kind != "cargo"}
    assert others["rust-std"] == "MIT OR Apache-2.0"
    assert others["libc6-dev"] == "LGPL-2.1-or-later"


def test_texts_stand_once_with_all_their_owners(
    parts: list,  # type: ignore[type-arg]
) -> None:
    text = importlib.import_module("third_parties").render_licences(parts, "1.2.0")
    for part in parts:
        assert f"{part.name} {part.version}: {part.licence}\n" in text
        for name, content in part.texts:
            assert f"{part.name} {part.version}: {name}\n" in text
            assert text.count(content.strip()) >= 1
    bodies = {hashlib.sha256(body.strip().encode()).digest() for p in parts for _, body in p.texts}
    assert len(re.findall(r"^-{80}\n\n", text, re.MULTILINE)) >= len(bodies)
