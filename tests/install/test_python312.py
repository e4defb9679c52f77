"""The wheel under Python 3.12, which is in neither Debian: one that this machine has beside its
own, brought along with all that it is made of."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.process.start import run
from support.install_systems import BROUGHT, Person, System, newest, start_root
from support.install_tries import ONE_CELL, SMALL_STUDY

VERSION = "3.12"


def find_python() -> Path | None:
    """Where it lies: of pyenv, whose own word for it on PATH may mean none, else on PATH."""
    beside = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{VERSION}.*/bin/python{VERSION}"))
    on_path = shutil.which(f"python{VERSION}")
    return beside[-1] if beside else Path(on_path) if on_path else None


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    """Root of a Debian 12 with that Python, the wheel installed for it."""
    python = find_python()
    if python is None:
        pytest.skip(f"this machine has no python{VERSION}, on PATH or of pyenv")
    ask = "import sys; print(sys.base_prefix)"
    prefix = Path(run([str(python), "-c", ask], timeout=30).text.strip())
    wanted = (*BROUGHT, "fio", "fuse3", "qemu-system-common", "qemu-utils")
    with tempfile.TemporaryDirectory(prefix="diskproof-install-", dir="/var/tmp") as folder:
        with start_root("bookworm", Path(folder), f"--include={','.join(wanted)}") as root:
            left_out = shutil.ignore_patterns("test", "__pycache__", "*.a")
            shutil.copytree(prefix, root / prefix.relative_to("/"), True, left_out)
            person = Person(System("bookworm", root), 0)
            own = prefix / "bin" / f"python{VERSION}"
            person.run("pipx", "install", "--python", str(own), f"/mnt/dist/{newest('*.whl')}")
            yield person


def test_it_runs_under_that_python(person: Person) -> None:
    where = person.run("sh", "-c", 'dirname "$(readlink -f "$(command -v diskproof)")"').strip()
    assert person.run(f"{where}/python", "--version").split()[1].startswith(VERSION)
    assert person.run("diskproof", "--version").startswith("diskproof ")
    found = person.findings()
    assert [each for each in found.values() if each["needed"] and each["ok"] == "no"] == []


def test_a_study_is_measured_and_ranked(person: Person) -> None:
    (person.home / "small.toml").write_text(SMALL_STUDY)
    assert "4 runs, none failed" in person.run("diskproof", "run", "small.toml", expected=(0, 1))
    assert "rand-read-4k-d32: IOPS, higher is better" in person.run("diskproof", "rank")


def test_a_crash_is_judged(person: Person) -> None:
    (person.home / "one.toml").write_text(ONE_CELL)
    asked = ("diskproof", "crash", "study", "one.toml", "--quiet", "--json")
    found = person.run_json(*asked, "--store", "one.sqlite", expected=(0, 1))
    verdicts = {each["cell"]["cache"]: each["verdict"] for each in found}
    assert verdicts == {"none": "keeps", "unsafe": "loses"}
