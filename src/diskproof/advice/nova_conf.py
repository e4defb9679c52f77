"""nova.conf as oslo.config reads it: sections, keys, the last value of a key."""

from diskproof.advice.documents import MAX_CHARACTERS
from diskproof.errors import UsageError

_MAX_ITEMS = 1000
Sections = dict[str, dict[str, str]]


def read_sections(text: str, name: str) -> Sections:
    """Values by section (in small letters but for DEFAULT) and key. A comment is a line that
    begins with # or ;, a line that begins with a blank goes on with the value before it. Rules:
    oslo.config 10.7.0 iniparser.py. Raises UsageError with the line that breaks them."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{name}: too large", f"at most {MAX_CHARACTERS} characters are read")
    found: Sections = {}
    section: dict[str, str] | None = None
    key = ""
    values: dict[str, list[str]] = {}
    for number, whole in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = whole.rstrip()
        if line[:1] in (" ", "\t"):
            if not key:
                raise _refuse(name, number, "a line that goes on with nothing")
            values[key].append(line.lstrip())
            continue
        if section is not None and key:
            section[key] = "\n".join(values.pop(key))
        key = ""
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            if len(line) < 3 or line[-1] != "]":
                raise _refuse(name, number, "a section without its name or its end")
            title = line[1:-1]
            section = found.setdefault(title if title == "DEFAULT" else title.lower(), {})
            continue
        key, value = _split(line)
        if not key or section is None:
            raise _refuse(name, number, "neither a section nor a key with a value in one")
        values[key] = [value]
    if section is not None and key:
        section[key] = "\n".join(values[key])
    return found


def render_sections(sections: Sections) -> str:
    """The text that ``read_sections`` reads as these; empty sections are left out."""
    lines = [
        line
        for title, keys in sections.items()
        if keys
        for line in (f"[{title}]", *(f"{key} = {_render(keys[key])}" for key in keys))
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _render(value: str) -> str:
    quoted = value and (value[0] == value[-1] in "\"'" or value != value.strip())
    text = f'"{value}"' if quoted and "\n" not in value else value
    return text.replace("\n", "\n    ")


def _split(line: str) -> tuple[str, str]:
    """The key and its value, without its quotes; no key where there is no ``=`` and no ``:``."""
    places = [place for place in (line.find("="), line.find(":")) if place >= 0]
    if not places:
        return "", ""
    key, value = line[: min(places)].strip(), line[min(places) + 1 :].strip()
    if value and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return key, value


def _refuse(name: str, number: int, what: str) -> UsageError:
    return UsageError(f"{name}:{number}: this is not nova.conf", what)


def read_list(value: str) -> list[str]:
    """The items of a ListOpt. Raises UsageError for very many."""
    if value.count(",") > _MAX_ITEMS:
        raise UsageError("nova.conf: a list of too many items", f"at most {_MAX_ITEMS} are read")
    return [item for item in (part.strip() for part in value.split(",")) if item]


def read_flag(value: str, default: bool) -> bool:
    """A BoolOpt as oslo.config takes it; what it would refuse is ``default``."""
    word = value.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off") else default
