"""The set-up: what a bare clone turns into a working tree. Requires git, make and bash."""

import ast
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from diskproof.guest.ours.packages import EXTRA_PACKAGES
from diskproof.process import start as proc

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
LISTS = tuple(f"packages-{each}.txt" for each in ("deb", "demo", "install", "test"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRA_LISTS = PYPROJECT["project"]["optional-dependencies"]

# Hosts that serve packages, each split so that this file does not name them itself.
REGISTRIES = tuple(
    ".".join(parts).encode()
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("crates", "io"),
        ("deb", "debian", "org"),
        ("snapshot", "debian", "org"),
        ("security", "debian", "org"),
        ("registry", "npmjs", "org"),
        ("proxy", "golang", "org"),
        ("repo1", "maven", "org"),
    )
)
# Cargo writes where a crate comes from by this name; users' own settings replace the source.
CARGO_NAME_OF_ITS_REGISTRY = (
    b'source = "registry+https://github.com/rust-lang/' + b"crates." + b'io-index"'
)


def tracked_files() -> list[Path]:
    listing = proc.run(["git", "ls-files", "-z"], timeout=30, cwd=ROOT).text
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def read_lock(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Package name -> its requirement and its hashes. One entry for each package."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    entries: dict[str, tuple[Requirement, list[str]]] = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            requirement = Requirement(line.split(" --hash=")[0])
            assert canonicalize_name(requirement.name) not in entries
            entries[canonicalize_name(requirement.name)] = (
                requirement,
                re.findall(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)", line),
            )
    return entries


def package_rows(name: str) -> list[list[str]]:
    lines = (ROOT / "setup" / name).read_text().splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def test_no_tracked_file_names_a_registry() -> None:
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if path.name == "Cargo.lock":
            content = content.replace(CARGO_NAME_OF_ITS_REGISTRY, b"")
        found += [(str(path.relative_to(ROOT)), host) for host in REGISTRIES if host in content]
    assert found == []


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_and_hashes_every_package(name: str) -> None:
    lock = read_lock(name)
    assert len(lock) > 20
    for requirement, hashes in lock.values():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement


def test_dev_lock_agrees_with_the_lock() -> None:
    lock, dev = read_lock(LOCKS[0]), read_lock(LOCKS[1])
    # Where a package is for some platforms only may differ: another one may want it everywhere.
    assert {name: dev[name][0].specifier for name in lock} == {
        name: requirement.specifier for name, (requirement, _) in lock.items()
    }


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (LOCKS[0], PYPROJECT["project"]["dependencies"]),
        (LOCKS[0], EXTRA_LISTS["parquet"] + EXTRA_LISTS["postgres"] + EXTRA_LISTS["report"]),
        (LOCKS[1], EXTRA_LISTS["fleet"]),
        (LOCKS[0], PYPROJECT["dependency-groups"]["build"]),
        (LOCKS[0], PYPROJECT["build-system"]["requires"]),
        (LOCKS[1], PYPROJECT["dependency-groups"]["dev"]),
    ],
    ids=["run time", "demo", "fleet", "build", "build-system", "dev"],
)
def test_lock_holds_what_the_project_asks_for(name: str, wanted: list[str]) -> None:
    lock = read_lock(name)
    for asked in map(Requirement, wanted):
        pinned, _ = lock[canonicalize_name(asked.name)]
        assert asked.specifier.contains(str(pinned.specifier).removeprefix("==")), asked


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not run in .venv")
def test_environment_is_what_the_lock_says() -> None:
    for requirement, _ in read_lock(LOCKS[1]).values():
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(version(requirement.name)), requirement


def test_help_lists_the_targets() -> None:
    listing = proc.run(["make", "help"], timeout=30, cwd=ROOT).text
    targets = [line.split()[0] for line in listing.splitlines()]
    wanted = {"bench", "clean", "demo", "guest", "help", "lint", "setup", "test"}
    assert wanted <= set(targets)


def test_make_test_runs_every_folder_of_tests_though_one_failed() -> None:
    make = ["make", "--no-print-directory", "--dry-run", "test"]
    recipe = proc.run(make, timeout=30, cwd=ROOT).text
    recipe = recipe[recipe.index("status=0;") :]
    runs = re.findall(r"suite '[^']+' (.+);", recipe)
    heavy = ["tests/integration", "tests/vm", "tests/e2e"]
    assert [[word for word in run.split() if word.startswith("tests")] for run in runs] == [
        ["tests"],
        heavy,
    ]
    apart = {word for word in runs[0].split() if word.startswith("--ignore=")}
    assert {word.removeprefix("--ignore=") for word in apart} == {*heavy, "tests/install"}
    for failing in ["--dist worksteal", "none"]:
        fake = f'echo "$@"; [[ " $* " != *" {failing} "* ]]'
        shell = recipe.replace(".venv/bin/python -m pytest", "fake")
        done = proc.run(["bash", "-c", f"fake() {{ {fake}; }}; {shell}"], timeout=30, check=False)
        assert done.returncode == (failing != "none") and done.text.count(" ==\n") == 2


def test_continuous_integration_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    for seconds, wanted in ((60, ["test", "test-zfs"]), (2400, ["test"])):
        made = f'make() {{ echo "made $*"; SECONDS=$((SECONDS + {seconds})); }}; . {script}'
        done = proc.run(["bash", "-c", made, str(script)], timeout=30)
        said = [line for line in done.text.splitlines() if line.startswith("made ")]
        assert said == [f"made {target}" for target in wanted]


def test_continuous_integration_fails_with_make_test() -> None:
    failing = f"make() {{ return 1; }}; . {ROOT / '.ci' / 'run'}"
    argv = ["bash", "-c", failing, str(ROOT / ".ci" / "run")]
    assert proc.run(argv, timeout=30, check=False).returncode == 1


@pytest.mark.parametrize("name", LISTS)
def test_package_lists_are_sorted_and_complete(name: str) -> None:
    rows = package_rows(name)
    assert rows == sorted(rows)
    assert all(len(row) == 2 for row in rows)


def test_no_package_is_listed_twice() -> None:
    names = [row[0] for name in LISTS for row in package_rows(name)]
    assert len(names) == len(set(names))


def required_tools() -> Iterator[tuple[str, ...]]:
    """(file, program, package) of every ``require_tool("program", "package")`` in the source."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("require_tool"):
                values = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                if len(values) == 2:
                    yield str(path.relative_to(ROOT)), *map(str, values)


def test_setup_installs_what_the_source_requires() -> None:
    """On the host, or in one of the guests."""
    listed = {row[0] for name in LISTS for row in package_rows(name)}
    listed |= {package for extra in EXTRA_PACKAGES.values() for package in extra}
    tools = list(required_tools())
    assert tools
    assert [tool for tool in tools if tool[2] not in listed] == []


@pytest.fixture
def tree(public: Path) -> Path:
    """A copy of setup/ in a folder of its own that every user can read."""
    shutil.copytree(ROOT / "setup", public / "setup")
    return public


def test_once_runs_again_only_when_its_inputs_change(tree: Path) -> None:
    source = tree / "source"
    (source / "target").mkdir(parents=True)
    (source / "file").write_text("one")
    once = [str(tree / "setup" / "once"), "step", "source", "--"]

    def count_after(*command: str, check: bool = True) -> int:
        proc.run([*once, *command], timeout=30, check=check)
        done = tree / "done"
        return done.read_text().count("x") if done.exists() else 0

    append = ("bash", "-c", "printf x >> done")
    assert count_after("false", check=False) == 0
    assert count_after(*append) == 1
    assert count_after(*append) == 1
    (source / "target" / "built").write_text("what the step itself made")
    assert count_after(*append) == 1
    (source / "file").write_text("two")
    assert count_after(*append) == 2
    (source / "new").write_text("")
    assert count_after(*append) == 3
    assert count_after("false", check=False) == 3
    assert count_after(*append) == 4


def test_without_root_the_line_to_type_is_printed(tree: Path) -> None:
    listing = tree / "list.txt"
    listing.write_text("# a comment\nbash bash\nno-such-package|no-such-either no-such-program\n")
    argv = [str(tree / "setup" / "packages"), str(listing)]
    if os.geteuid() == 0:
        argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *argv]
    done = proc.run(argv, timeout=60, check=False)
    assert done.returncode == 1
    assert done.text == "Debian packages needed: bash no-such-package\n"
    line = "sudo apt-get update && sudo apt-get install --no-install-recommends no-such-package"
    assert line in [text.strip() for text in done.error_text.splitlines()]


def test_nothing_is_installed_when_all_is_there(tree: Path) -> None:
    listing = tree / "list.txt"
    listing.write_text("bash /bin/*sh\nutil-linux setpriv\n")
    done = proc.run([str(tree / "setup" / "packages"), str(listing)], timeout=60)
    assert done.text.splitlines()[-1] == "All of them, or what they bring, are there."


CONFLICTING = ("qemu-system-x86", "qemu-utils", "qemu-system-common")


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs for root only")
def test_a_proxmox_host_is_left_alone(tree: Path) -> None:
    """By dpkg's own word, of a package that conflicts as the real one does."""
    fake = tree / "fake"
    (fake / "DEBIAN").mkdir(parents=True)
    names = ", ".join(CONFLICTING)
    fields = ("Package: pve-qemu-kvm", "Version: 11.0.0-1", "Architecture: all")
    fields += ("Maintainer: Nobody <nobody@localhost>", f"Conflicts: {names}", f"Provides: {names}")
    control = "\n".join([*fields, "Description: takes the place of Debian's QEMU", ""])
    (fake / "DEBIAN" / "control").write_text(control)
    (tree / "db" / "updates").mkdir(parents=True)
    (tree / "db" / "status").touch()
    (tree / "db" / "info").mkdir()
    (tree / "root").mkdir()
    proc.run(["dpkg-deb", "--build", str(fake), str(tree / "fake.deb")], timeout=60)
    dpkg = ["dpkg", "--force-not-root", f"--admindir={tree}/db", f"--instdir={tree}/root"]
    listing = tree / "list.txt"
    listing.write_text("no-such-package no-such-program\n")
    argv = [str(tree / "setup" / "packages"), str(listing)]
    environment = {**os.environ, "DPKG_ADMINDIR": f"{tree}/db"}
    proc.run([*dpkg, "--install", str(tree / "fake.deb")], timeout=60)
    done = proc.run(argv, timeout=60, check=False, env=environment)
    assert done.returncode == 1
    assert "This is a Proxmox host: nothing is installed here." in done.error_text
    assert "Missing: no-such-program" in done.error_text
    assert "Installing" not in done.text


def test_an_old_toolchain_first_on_the_path_is_passed_over(tree: Path) -> None:
    (tree / "native").mkdir()
    shutil.copy(ROOT / "native" / "Cargo.toml", tree / "native")
    old = tree / "old"
    old.mkdir()
    for name, text in (("rustc", "rustc 1.63.0 (x)"), ("cargo", "the old cargo")):
        (old / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (old / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{old}:{os.environ['PATH']}"}
    done = proc.run([str(tree / "setup" / "cargo"), "--version"], timeout=60, env=environment)
    assert re.match(r"cargo 1\.\d+", done.text)
    assert "the old cargo" not in done.text


def test_a_python_that_cannot_make_environments_is_passed_over(tree: Path) -> None:
    poor = tree / "poor"
    poor.mkdir()
    (poor / "python3").write_text("#!/bin/sh\nexit 1\n")
    (poor / "python3").chmod(0o755)
    environment = {**os.environ, "PATH": f"{poor}:{os.environ['PATH']}"}
    done = proc.run([str(tree / "setup" / "find-python")], timeout=60, env=environment)
    found = done.text.strip()
    assert Path(found).parent != poor
    proc.run([found, "-c", "import ensurepip, tomllib"], timeout=60)
