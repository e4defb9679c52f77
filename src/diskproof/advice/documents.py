"""YAML and JSON of strangers, bounded: what a document of a manager of machines says, or an error.

Nothing is constructed but mappings, lists, strings, numbers, booleans and null. Words such as
``on`` and ``yes`` stay the strings that they are (YAML 1.2), and keys are always strings.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from diskproof.errors import UsageError

MAX_CHARACTERS = 4 << 20
MAX_DEPTH = 64
MAX_NODES = 300_000
"""With every alias counted as what it stands for: a list of a thousand machines has about a third
of that, and reading so many as YAML takes about two seconds."""
MAX_DISKS = 5000
"""In one text."""
MAX_COMMAND = 256 << 10
"""Characters of a text with command lines."""
_NODE_CHARACTERS = 64
"""So much of a long scalar counts as one node more."""
_CORE_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_WORDS = {
    **dict.fromkeys(("null", "Null", "NULL", "~", "")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_json(text: str, name: str) -> object:
    """The one document of a JSON text. Raises UsageError for what is not JSON, NaN and keys that
    stand twice included, and for what is too large or too deep."""
    _require_text(text, name)
    try:
        document: object = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if _SURROGATE.search(text):  # half a character would break whoever prints it
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}:{error.lineno}: this is not JSON", error.msg) from error
    except RecursionError as error:
        raise UsageError(f"{name}: this JSON is nested too deep", _depth_hint()) from error
    except ValueError as error:
        raise UsageError(f"{name}: this JSON cannot be read", str(error)) from error
    _require_bounds(document, name)
    return document


def load_yaml(text: str, name: str) -> object:
    """The one document of a YAML text (None where it is empty). Raises UsageError for what
    ``load_yaml_documents`` refuses and for more than one document."""
    documents = load_yaml_documents(text, name)
    if len(documents) > 1:
        raise UsageError(f"{name}: {len(documents)} YAML documents, where one belongs")
    return documents[0] if documents else None


def load_yaml_documents(text: str, name: str) -> list[object]:
    """The documents of a YAML text, which ``---`` parts. Raises UsageError for what is not YAML,
    for tags other than YAML's own, keys that stand twice, aliases of what they stand in, and for
    what is too large or too deep."""
    _require_text(text, name)
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise UsageError(f"{where}: this is not YAML", error.problem or "") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(f"{name}: this is not YAML", str(error).splitlines()[0]) from error
    return builder.documents


def load_documents(text: str, name: str) -> list[object]:
    """The documents of a text that is JSON where it begins as JSON does, else YAML. Raises
    UsageError as the two do."""
    if text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return [load_json(text, name)]
    return load_yaml_documents(text, name)


def dump_yaml(document: object) -> str:
    """A document as YAML that every reader takes for what it is: a string that YAML 1.1 or 1.2
    could take for something else stands in quotes."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


def find_at(document: object, *keys: str) -> object:
    """What stands at the end of that path of keys, None where any of them is missing."""
    for key in keys:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def table_at(document: object, *keys: str) -> Mapping[str, object]:
    """The mapping at that path, empty where there is none."""
    found = find_at(document, *keys)
    return found if isinstance(found, dict) else {}


def list_at(document: object, *keys: str) -> list[object]:
    """The list at that path, empty where there is none."""
    found = find_at(document, *keys)
    return found if isinstance(found, list) else []


def text_at(document: object, *keys: str) -> str:
    """The scalar at that path as its text (``true``, not ``True``), empty where there is none."""
    found = find_at(document, *keys)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) else ""


def _require_text(text: str, name: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"{name}: too large", f"{len(text)} characters, at most {MAX_CHARACTERS} are read"
        )
    try:
        text.encode()
    except UnicodeError as error:
        raise UsageError(f"{name}: this is not text", str(error)) from error


def _depth_hint() -> str:
    return f"at most {MAX_DEPTH} levels are read"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice")
    return found


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word[:60]} is too large a number")
    return number


def _require_bounds(document: object, name: str) -> None:
    level, nodes = [document], 1
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        nodes += len(level)
        if nodes > MAX_NODES:
            raise UsageError(f"{name}: too many nodes", f"at most {MAX_NODES} are read")
        if not level:
            return
    raise UsageError(f"{name}: this JSON is nested too deep", _depth_hint())


def count_nodes(document: object) -> int:
    """How many values a document has, itself included."""
    return 1 + sum(count_nodes(child) for child in _children(document))


def require_few_disks(count: int, name: str) -> None:
    """It raises UsageError for more disks than are read of one text."""
    if count > MAX_DISKS:
        raise UsageError(f"{name}: too many disks", f"at most {MAX_DISKS} are read at once")


def require_short(text: str, name: str) -> None:
    """It raises UsageError for a longer text than command lines are looked for in."""
    if len(text) > MAX_COMMAND:
        raise UsageError(f"{name}: too large", f"at most {MAX_COMMAND} characters of command lines")


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _read_plain(word: str) -> object:
    """A scalar without quotes: YAML 1.2's words and numbers, anything else as its text."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word) and math.isfinite(number := float(word)):
        return number
    return word


_YAML_1_1 = ("y", "yes", "on", "true", "n", "no", "off", "false", "null")
_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")


_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """PyYAML quotes what YAML 1.1 takes for no string, and not what Go's or YAML 1.2 does."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    bare = _BARE.fullmatch(text) and text.lower() not in _YAML_1_1
    return dumper.represent_scalar(f"{_CORE_TAG}str", text, style=None if bare else '"')


_Dumper.add_representer(str, _represent_text)

_MERGE = object()
"""Stands for the key ``<<``, whose mapping gives what a mapping does not say itself."""


@dataclass
class _Open:
    """A collection whose end is not read yet. ``size`` is its nodes with aliases written out."""

    value: dict[str, object] | list[object]
    anchor: str | None
    size: int = 1
    key: str | object | None = None
    merged: list[Mapping[str, object]] = field(default_factory=list)


class _Builder:
    """It makes documents from a parser's events, one at a time, without recursion."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.documents: list[object] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._size = 0

    def take(self, event: Any) -> None:
        """One event of the parser."""
        if isinstance(event, yaml.ScalarEvent):
            self._take_scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._require_tag(event, ("map",) if is_mapping else ("seq",))
            if len(self._open) >= MAX_DEPTH:
                raise self._refuse(event, "nested too deep", _depth_hint())
            self._anchors.pop(event.anchor or "", None)
            self._open.append(_Open({} if is_mapping else [], event.anchor))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            done = self._open.pop()
            for mapping in done.merged:
                done.value = {**mapping, **done.value}  # type: ignore[dict-item]
            self._place(event, done.value, done.size, done.anchor)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._refuse(event, f"no anchor {event.anchor!r} is complete here")
            self._place(event, *self._anchors[event.anchor], None)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors = {}

    def _take_scalar(self, event: Any) -> None:
        self._require_tag(event, ("str", "int", "float", "bool", "null"))
        plain = not event.style and (event.tag is None or not event.tag.endswith(":str"))
        parent = self._open[-1] if self._open else None
        if parent and isinstance(parent.value, dict) and parent.key is None:
            self._size += 1
            self._take_key(event, parent, _MERGE if plain and event.value == "<<" else event.value)
        else:
            value = _read_plain(event.value) if plain else event.value
            self._place(event, value, 1 + len(event.value) // _NODE_CHARACTERS, event.anchor)

    def _take_key(self, event: Any, parent: _Open, key: str | object) -> None:
        if key is not _MERGE and key in parent.value:
            raise self._refuse(event, f"the key {str(key)[:60]!r} stands twice")
        if event.anchor:
            self._anchors[event.anchor] = (event.value, 1 + len(event.value) // _NODE_CHARACTERS)
        parent.key = key

    def _place(self, event: Any, value: object, size: int, anchor: str | None) -> None:
        """It puts a finished node where it belongs."""
        self._size += size
        if self._size > MAX_NODES:
            raise self._refuse(event, "too many nodes", f"at most {MAX_NODES} are read")
        if anchor:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self.documents.append(value)
            return
        parent = self._open[-1]
        parent.size += size
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is None:
            if isinstance(value, dict | list):
                raise self._refuse(event, "a key that is no scalar")
            self._take_key(event, parent, str(value))
        else:
            self._take_value(event, parent, value)

    def _take_value(self, event: Any, parent: _Open, value: object) -> None:
        assert isinstance(parent.value, dict)
        if parent.key is _MERGE:
            for mapping in value if isinstance(value, list) else [value]:
                if not isinstance(mapping, dict):
                    raise self._refuse(event, "<< with what is no mapping")
                parent.merged.append(mapping)
        else:
            parent.value[str(parent.key)] = value
        parent.key = None

    def _require_tag(self, event: Any, kinds: tuple[str, ...]) -> None:
        tag = event.tag
        if tag not in (None, "!", *(f"{_CORE_TAG}{kind}" for kind in kinds)):
            raise self._refuse(event, f"a tag that is not read: {tag[:60]}")

    def _refuse(self, event: Any, what: str, why: str = "") -> UsageError:
        return UsageError(f"{self.name}:{event.start_mark.line + 1}: {what}", why)
