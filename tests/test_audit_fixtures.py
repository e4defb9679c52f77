"""Configurations of every source with planted faults: all are named, and nothing else is.

``tests/fixtures/machines/*/expected.toml`` says of each file and disk what is to be said of it:
names of rules, and ``unknown`` where nothing may be called safe. Of a disk with an empty list the
verdict is ``keeps``.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.advice.judge import judge_machine
from diskproof.cli.audit_verb import read_file
from diskproof.records.virtual_machines import DiskJudgement
from support.layer_files import read_layers

ROOT = Path(__file__).parent / "fixtures" / "machines"
HARMLESS = ("keeps", "note")


def read_expected() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    for table in sorted(ROOT.glob("*/expected.toml")):
        for name, disks in tomllib.loads(table.read_text()).items():
            yield table.parent / name, disks


EXPECTED = list(read_expected())


def judge_file(path: Path) -> dict[str, list[DiskJudgement]]:
    """By ``disk``, of all machines in the file, and by ``machine/disk``."""
    layers = path.parent.name == "layers"
    found: dict[str, list[DiskJudgement]] = {}
    for machine in [read_layers(path)] if layers else read_file(path):
        for each in judge_machine(machine).disks:
            for name in (each.disk.name, f"{machine.name}/{each.disk.name}"):
                found.setdefault(name, []).append(each)
    return found


@pytest.mark.parametrize(
    ("path", "disks"), EXPECTED, ids=[f"{p.parent.name}/{p.name}" for p, _ in EXPECTED]
)
def test_every_planted_fault_is_named_and_nothing_else(
    path: Path, disks: dict[str, list[str]]
) -> None:
    judged = judge_file(path)
    assert set(disks) <= set(judged), f"found {sorted(judged)}"
    for name, wanted in disks.items():
        remarks = [remark for each in judged[name] for remark in each.disk.remarks]
        bad = {remark.rule for remark in remarks if remark.effect not in HARMLESS}
        unknown = {remark.rule for remark in remarks if remark.effect == "unknown"}
        rules = {remark.rule for remark in remarks}
        assert set(wanted) - {"unknown"} <= rules, f"{name}: {sorted(rules)}"
        allowed = set(wanted) | (unknown if "unknown" in wanted else set())
        assert bad <= allowed, f"{name}: a false alarm, {remarks}"
        effects = {each.effect for each in judged[name]}
        if "unknown" in wanted:
            assert not effects & set(HARMLESS), f"{name}: {effects}"
        if not wanted:
            assert effects == {"keeps"}, f"{name}: {effects}"


def test_there_are_enough_of_them() -> None:
    faults = {fault for _, disks in EXPECTED for wanted in disks.values() for fault in wanted}
    assert len(EXPECTED) >= 60
    assert len(faults) >= 12
