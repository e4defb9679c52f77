"""Configurations of every source with planted faults: all are named, and nothing else is.

``tests/fixtures/machines/*/expected.toml`` says of each file and disk what is to be said of it:
names of rules, and ``unknown`` where nothing may be called safe. Of a disk with an empty list the
verdict is ``keeps``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.advice.judge import judge_machine
from diskproof.cli.audit_verb import read_file
from diskproof.records.machines import DiskJudgement
from support.layer_files import read_layers

ROOT = Path(__file__).parent / "fixtures" / "machines"
HARMLESS = ("keeps", "note")


def read_expected() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    for table in sorted(ROOT.glob("*/expected.toml")):
        for name, disks in tomllib.loads(table.read_text()).items():
            yield table.parent / name, disks


EXPECTED = list(read_expected())


def judge_file(path: Path) -> dict[str, DiskJudgement]:
    """By ``disk``, or by ``machine/disk`` where several machines stand in a file."""
    layers = path.parent.name == "layers"
    judged = [judge_machine(each) for each in ([read_layers(path)] if layers else read_file(path))]
    single = {disk.disk.name: disk for each in judged for disk in each.disks}
    return single | {f"{j.machine.name}/{d.disk.name}": d for j in judged for d in j.disks}


@pytest.mark.parametrize(
    ("path", "disks"), EXPECTED, ids=[f"{p.parent.name}/{p.name}" for p, _ in EXPECTED]
)
def test_every_planted_fault_is_named_and_nothing_else(
    path: Path, disks: dict[str, list[str]]
) -> None:
    judged = judge_file(path)
    assert set(disks) <= set(judged), f"found {sorted(judged)}"
    for name, wanted in disks.items():
        found = judged[name]
        rules = {remark.rule for remark in found.disk.remarks}
        bad = {r.rule for r in found.disk.remarks if r.effect not in HARMLESS}
        assert set(wanted) - {"unknown"} <= rules, f"{name}: {sorted(rules)}"
        unknown = {r.rule for r in found.disk.remarks if r.effect == "unknown"}
        allowed = set(wanted) | (unknown if "unknown" in wanted else set())
        assert bad <= allowed, f"{name}: a false alarm, {found.disk.remarks}"
        if "unknown" in wanted:
            assert found.effect not in HARMLESS, f"{name}: {found.what}"
        if not wanted:
            assert found.effect == "keeps", f"{name}: {found.what}"


def test_there_are_enough_of_them() -> None:
    faults = {fault for _, disks in EXPECTED for wanted in disks.values() for fault in wanted}
    assert len(EXPECTED) >= 60
    assert len(faults) >= 12
