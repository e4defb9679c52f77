"""Published JSON Schemas: they are what is printed, and none changes under its number."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import TypedDict

import jsonschema
import pytest

from diskproof.cli import run_command_line
from diskproof.cli.outputs import OUTPUTS
from diskproof.cli.version_json import NUMBERS, describe_version
from support import json_schemas
from support.json_schemas import FOLDER, current, make_schema, publish, read_digests, validate
from support.verbs import VERBS, verbs_for


class Shape(TypedDict):
    name: str
    n: int


class Wider(Shape):
    unit: str


def test_a_published_schema_never_changes_and_is_what_is_printed() -> None:
    """What to do when this fails stands in docs/json.md."""
    digests = read_digests()
    for name, text in current().items():
        assert (FOLDER / name).read_text() == text, f"{name}: make schemas"
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in schema_files()}
    assert found == digests


def schema_files() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", schema_files(), ids=lambda path: path.stem)
def test_a_schema_is_one(path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    name, number = path.stem.rsplit("-", 1)
    assert schema["$id"] == f"urn:diskproof:{name}:{number}"


def test_every_verb_with_json_has_a_schema() -> None:
    assert set(OUTPUTS) == set(NUMBERS)
    exempt = [verb for verb in VERBS if "json" in verb.exempt]
    with_json = [*verbs_for("json", option="--json"), *exempt]
    assert {verb.name.replace(" ", "-") for verb in with_json} <= set(NUMBERS)


def test_the_version_is_as_published() -> None:
    told = json.loads(json.dumps(describe_version()))
    validate("version", told)
    assert told["outputs"] == NUMBERS


@pytest.mark.parametrize("name", ["show", "rank", "status", "factors", "stability", "advise"])
def test_what_is_said_of_old_stores(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every version of the schema, with failed runs, verdicts and few figures."""
    for packed in sorted((Path(__file__).parent / "golden/stores").glob("*.sqlite.gz")):
        store = tmp_path / packed.stem
        store.write_bytes(gzip.decompress(packed.read_bytes()))
        more = {"show": ["--all"], "advise": ["--for", "libvirt"]}.get(name, [])
        code = run_command_line([name, *more, "--json", "--store", str(store)])
        told = capsys.readouterr()
        if told.out:
            validate(name, json.loads(told.out))
        assert bool(told.out) == (code < 2), told.err


def test_a_wrong_output_is_refused() -> None:
    told = json.loads(json.dumps(describe_version()))
    for wrong in ({**told, "store_schema": "3"}, {**told, "more": 1}, {"version": "1"}, []):
        with pytest.raises(jsonschema.ValidationError):
            validate("version", wrong)


def test_a_change_takes_a_new_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"shape": 1}
    monkeypatch.setattr(json_schemas, "FOLDER", tmp_path)
    monkeypatch.setattr(json_schemas, "DIGESTS", tmp_path / "SHA256SUMS")
    monkeypatch.setattr(json_schemas, "NUMBERS", numbers)
    monkeypatch.setattr(json_schemas, "OUTPUTS", {"shape": Shape})
    publish()
    publish()
    first = (tmp_path / "shape-1.json").read_bytes()
    monkeypatch.setattr(json_schemas, "OUTPUTS", {"shape": Wider})
    with pytest.raises(SystemExit, match=r"shape-1\.json"):
        publish()
    assert (tmp_path / "shape-1.json").read_bytes() == first
    numbers["shape"] = 2
    publish()
    assert (tmp_path / "shape-1.json").read_bytes() == first
    assert set(read_digests()) == {"shape-1.json", "shape-2.json"}
    monkeypatch.setattr(json_schemas, "OUTPUTS", {"shape": Shape})
    publish(unreleased=True)
    assert make_schema("shape", 2, Shape) == json.loads((tmp_path / "shape-2.json").read_text())
