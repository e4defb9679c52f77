"""JSON Schemas of all that ``--json`` prints, made from the types in ``cli/outputs.py``.

``make schemas`` writes docs/schemas/NAME-NUMBER.json and lists their digests. A file that is listed
never changes: another look is another number, raised in ``cli/version_json.py``.
``make schemas-unreleased`` writes over numbers that no release has had.
"""

import hashlib
import json
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from diskproof.cli.outputs import OUTPUTS
from diskproof.cli.version_json import NUMBERS

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
DIGESTS = FOLDER / "SHA256SUMS"
Schema = dict[str, Any]
PLAIN: Mapping[Any, Schema] = {
    Any: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}


def make_schema(name: str, number: int, output: Any) -> Schema:
    """The whole schema of one output; records stand by their names in ``$defs``."""
    records: dict[str, Schema] = {}
    body = describe(output, records, {})
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:diskproof:{name}:{number}",
        "title": f"diskproof {name.replace('-', ' ')} --json",
    }
    if name == "version":
        head["title"] = "diskproof --version --json"
    return {**head, **body, "$defs": dict(sorted(records.items()))}


def describe(hint: Any, records: dict[str, Schema], given: Mapping[Any, Any]) -> Schema:
    """The schema of one type; ``given`` are the types that type variables stand for."""
    if isinstance(hint, TypeVar):
        hint = given[hint]
    if hint in PLAIN:
        return PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return describe(parts[0], records, given)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [describe(part, records, given) for part in parts]}
    if origin is tuple and Ellipsis not in parts:
        items = [describe(part, records, given) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": describe(parts[1], records, given)}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": describe(parts[0], records, given)}
    if origin is Annotated:
        return _refer(parts[1:], records, given)
    return _refer((hint,), records, given)


def _refer(shapes: Sequence[Any], records: dict[str, Schema], given: Mapping[Any, Any]) -> Schema:
    """A record by its name: the fields of all shapes, the later ones' in place of the earlier."""
    arguments = [get_args(shape) for shape in shapes]
    classes = [get_origin(shape) or shape for shape in shapes]
    named = [each for group in arguments for each in group]
    name = "-".join(
        each.__name__.removesuffix("Json")
        for each in (*classes, *named)
        if hasattr(each, "__name__")
    )
    if name not in records:
        records[name] = {}
        properties, required = {}, []
        for shape, group in zip(classes, arguments, strict=True):
            bound = {**given, **dict(zip(getattr(shape, "__parameters__", ()), group, strict=True))}
            for field, hint in _fields(shape).items():
                properties[field] = describe(hint, records, bound)
                required += [] if get_origin(hint) is NotRequired else [field]
        records[name] = {
            "type": "object",
            "properties": properties,
            "required": list(dict.fromkeys(required)),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _names(shape: Any) -> list[str]:
    if get_origin(shape) in (Union, types.UnionType):
        return [name for part in get_args(shape) for name in _names(part)]
    return [shape.__name__]


def _fields(shape: Any) -> dict[str, Any]:
    assert is_typeddict(shape) or is_dataclass(shape), shape
    return get_type_hints(shape, include_extras=True)


def render(schema: Schema) -> str:
    return json.dumps(schema, indent=1) + "\n"


def current() -> dict[str, str]:
    """What the files of the numbers in force have to hold, by their names."""
    return {
        f"{name}-{number}.json": render(make_schema(name, number, OUTPUTS[name]))
        for name, number in NUMBERS.items()
    }


def validate(name: str, content: object) -> None:
    """Hold what was printed, or what will be, to its published schema."""
    import jsonschema  # of the tests only; who makes schemas needs none

    schema = json.loads((FOLDER / f"{name}-{NUMBERS[name]}.json").read_text())
    jsonschema.validate(content, schema, jsonschema.Draft202012Validator)


def read_digests() -> dict[str, str]:
    """Digests of all schemas that were published, by file name."""
    lines = DIGESTS.read_text().splitlines() if DIGESTS.exists() else []
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def publish(*, unreleased: bool = False) -> None:
    """Write what is new. SystemExit where a published schema would change under its number."""
    listed, made = read_digests(), current()
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in made.items()}
    changed = [name for name, digest in digests.items() if listed.get(name, digest) != digest]
    if changed and not unreleased:
        raise SystemExit(
            f"published, and no longer what is printed: {', '.join(changed)}\n"
            "Raise their numbers in src/diskproof/cli/version_json.py; where no release has them "
            "yet: make schemas-unreleased"
        )
    FOLDER.mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text)
    lines = [f"{digest}  {name}\n" for name, digest in sorted({**listed, **digests}.items())]
    DIGESTS.write_text("".join(lines))


if __name__ == "__main__":
    publish(unreleased="--unreleased" in sys.argv[1:])
