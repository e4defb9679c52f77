"""What stored runs are known by does not change when the reading of study files does."""

import json
from pathlib import Path

import pytest

from diskproof.plan.tiles import tile_workload
from diskproof.records import Cell, content_id
from diskproof.study.crash import crash_workload
from diskproof.study.load import Study, load_study

ROOT = Path(__file__).parent.parent
GOLDEN = json.loads((ROOT / "tests" / "golden" / "study_ids.json").read_text())
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
OWN = ("own-guest.toml", "windows-diskspd.toml")
"""Known by the user's image, which is not here."""


def ids_of(study: Study) -> dict[str, str]:
    """The study's id, and what its workloads, writers and tile add to the ids of cells."""
    specs = list(study.workloads)
    specs += [
        crash_workload(study.crash, writer, frontend)
        for writer in study.crash.writers
        for frontend in ("host", "guest")
    ]
    specs += [tile_workload(study.tiles)] if study.tiles else []
    backings = content_id([[each.name, each.kind, each.options] for each in study.backings])
    cells = content_id([Cell((), spec).id for spec in specs])
    return {"study": study.id, "seed": str(study.seed), "cells": cells, "backings": backings}


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.name)
def test_ids_are_those_of_stored_runs(path: Path) -> None:
    if path.name not in OWN:
        assert ids_of(load_study(path)) == GOLDEN[path.name]


def test_every_study_has_its_ids() -> None:
    assert {path.name for path in STUDIES} == {*GOLDEN, *OWN}
