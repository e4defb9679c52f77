"""Defaults of managers as a user meets them: measured beside a cell of one's own, ranked by name,
crashed from the same file.

Requires root, fio, qemu-utils and qemu-system-common (setup/packages-demo.txt).
"""

import json
from pathlib import Path

import pytest

from diskproof.store import open_store
from support.commands import diskproof, left_behind, write_study
from support.json_schemas import validate

pytestmark = pytest.mark.long

STUDY = """
name = "given"
like = ["qemu", "libvirt", "proxmox"]
workloads = ["sync-write-4k"]
[backings.disk]
path = "images"
[factors]
frontend = "daemon"
format = "raw"
cache = ["directsync", "unsafe"]
[crash]
faults = ["power"]
records = 32
explore_seconds = "1s"
[protocol]
blocks = 2
size = "16MiB"
runtime = "1s"
ramp = "0s"
"""
MANAGERS = {"qemu", "libvirt", "proxmox"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study, its runs and then its verdicts."""
    folder = tmp_path_factory.mktemp("like")
    study = write_study(folder, STUDY)
    for verb in ("run", "crash"):
        done = diskproof(verb, study, cwd=folder)
        assert done.returncode == (0 if verb == "run" else 1), done.error_text  # unsafe loses
    return folder


def told(folder: Path, *words: str) -> str:
    done = diskproof(*words, cwd=folder)
    assert done.returncode == 0, done.error_text
    return done.text


def managers_of(cell: dict[str, object]) -> set[str]:
    names = cell["default_of"]
    assert isinstance(names, list)
    return {name.partition(" ")[0] for name in names}


def test_every_default_is_ranked_by_its_name_with_its_verdict(measured: Path) -> None:
    (study,) = json.loads(told(measured, "rank", "--json"))
    assert study["failed_runs"] == 0
    (ranking,) = study["rankings"]
    ranked = {manager: cell for cell in ranking["cells"] for manager in managers_of(cell)}
    assert ranked.keys() == MANAGERS
    for manager, cell in ranked.items():
        assert cell["label"].endswith(" default)") and manager in cell["label"]
        assert cell["n"] == 2 and cell["mean"] > 0
        (verdict,) = cell["durability"]
        assert verdict["verdict"] == "keeps"
    assert ranked["proxmox"]["cell"]["cache"] == "none"
    assert ranked["qemu"]["cell"]["cache"] == "writeback"
    own = [cell for cell in ranking["cells"] if not cell["default_of"]]
    assert {cell["cell"]["cache"] for cell in own} == {"directsync", "unsafe"}


def test_the_plan_says_where_each_default_is_written(measured: Path) -> None:
    plan = json.loads(told(measured, "plan", "study.toml", "--json"))
    validate("plan", plan)
    assert {each["manager"] for each in plan["defaults"]} == MANAGERS
    assert all(each["source"] and each["version"] for each in plan["defaults"])


def test_runs_have_what_the_name_says(measured: Path) -> None:
    """The effective configuration of a manager's cell is what QMP told."""
    with open_store(str(measured / "diskproof.sqlite")) as store:
        (study,) = store.studies()
        names = {cell.id: cell.names for cell in study.cells}
        checks = store.checks(study.id)
    found = {
        name.partition(" ")[0]: {check.name: check.effective for check in checks[cell]}
        for cell, of_cell in names.items()
        for name in of_cell
    }
    settings = ("disk: cache.direct", "aio", "disk: detect_zeroes")
    assert [found["proxmox"][each] for each in settings] == ["on", "io_uring", "on"]
    assert [found["qemu"][each] for each in settings] == ["off", "threads", "off"]
    assert all(check.ok for each in checks.values() for check in each)


def test_nothing_is_left(measured: Path) -> None:
    assert left_behind(measured) == []
