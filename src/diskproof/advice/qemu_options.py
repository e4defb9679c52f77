"""QEMU's command line as options: shell text, argv, ``key=value`` lists, JSON, -readconfig files.

An option's keys are flat: ``file.cache.direct`` is the same from JSON and from dotted keys. Rules:
qemu(1) 7.2, and QEMU's util/keyval.c and util/qemu-option.c for ``,,`` and bare words.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from diskproof.errors import UsageError

Flat = Mapping[str, str | None]
"""Keys with values; None is JSON's null."""

MAX_TEXT = 1 << 20
"""Characters of one command line or script; the kernel takes 2 MiB for all arguments."""
PROGRAM = re.compile(r"(?:.*/)?(?:qemu-system-[\w.-]+|qemu-kvm)|.*/kvm")
_MAX_KEYS = 4096
_IMPLIED = {
    "device": "driver",
    "blockdev": "driver",
    "object": "qom-type",
    "machine": "type",
    "M": "type",
    "name": "guest",
    "chardev": "backend",
    "mon": "chardev",
}
_WITHOUT_VALUE = re.compile(
    "S|s|usb|nographic|snapshot|daemonize|h|help|version|nodefaults"
    "|no-user-config|no-reboot|no-shutdown|enable-kvm|no-acpi|no-hpet|full-screen"
    "|no-fd-bootchk|no-quit|alt-grab|ctrl-grab|curses|sdl|singlestep|win2k-hack"
    "|rtc-td-hack|portrait|mem-prealloc|nodefconfig|preconfig|only-migratable"
    "|semihosting|xen-attach|xen-domid-restrict|old-param|enable-fips|no-kvm"
    "|no-frame|no-kvm-irqchip|no-kvm-pit|tdf"
)
_PIECE = re.compile(
    r"(?P<space>[ \t\r]+|\\\r?\n)|(?P<comment>#[^\n]*)|(?P<end>[\n;&|<>()]+)"
    r"""|(?P<word>(?:\\[\s\S]|\$\([^()]*\)|'[^']*'|"(?:\\[\s\S]|[^"\\])*"|[^\s;&|<>()'"\\])+)"""
)
_PART = re.compile(
    r"""\\\r?\n|\\([\s\S])|'([^']*)'|"((?:\\[\s\S]|[^"\\])*)"|([^'"\\]+)"""  # of a word
)
_LINE_END = re.compile(r"(?<!\\)\n")
STARTS = re.compile(
    r"(?:(?:^|[\s/'\"=])(?:qemu-system-[\w.-]+|qemu-kvm)|^[ \t]*(?:\w+[ \t]+)?kvm|/kvm)"
    r"['\"]?(?:\s|\\\n|\0)+-",
    re.MULTILINE,
)
_SECTION = re.compile(r'\[\s*([\w-]+)(?:\s+"([^"]*)")?\s*\]')
_SETTING = re.compile(r'([\w.-]+)\s*=\s*"([^"]*)"')
CONFIG_FILE = re.compile(r'^\[(?:drive|device|object|chardev) "[^"]*"\]', re.MULTILINE)


@dataclass(frozen=True)
class QemuOption:
    """One option: ``name`` without dashes, ``text`` its argument as it was given."""

    name: str
    text: str = ""
    keys: Flat | None = None
    """Of a -readconfig file, which has no text of the kind."""

    @property
    def flat(self) -> Flat:
        """Its keys. Raises UsageError where they cannot be read."""
        return self.keys if self.keys is not None else read_keys(self.name, self.text)

    def render(self) -> str:
        """The option as a shell takes it."""
        text = self.text or render_keys(self.name, self.keys or {})
        return shlex.join([f"-{self.name}", *([text] if text else [])])


def split_commands(text: str) -> list[list[str]]:
    """The words of each simple command in a shell's text, unquoted; nothing is expanded.

    JSON without quotes, as ps prints it, is one word. Raises UsageError for a quote without end.
    """
    return list(_commands(text, 1))


def _commands(text: str, first_line: int) -> Iterator[list[str]]:
    if len(text) > MAX_TEXT:
        raise UsageError("the command line is too long", f"it has more than {MAX_TEXT} characters")
    words: list[str] = []
    place, tries = 0, 8  # of JSON that is none: each may cost the whole text
    while place < len(text):
        bare = text[place] == "{" and tries > 0
        if bare and (length := _bare_json(text, place)):
            words.append(text[place : place + length])
            place += length
            continue
        tries -= bare
        found = _PIECE.match(text, place)
        if found is None:
            line = text.count("\n", 0, place) + first_line
            raise UsageError(f"line {line}: a quote has no end", text[place : place + 40].strip())
        if found["word"]:
            words.append(_unquote(found["word"]))
        elif found["end"] and words:
            yield words
            words = []
        place = found.end()
    if words:
        yield words


def _bare_json(text: str, place: int) -> int:
    """How long the JSON object is that starts there; 0: it is none."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, place)
    except (ValueError, RecursionError):
        return 0
    return end - place if not text[end : end + 1].strip() else 0


def _unquote(word: str) -> str:
    parts = []
    for found in _PART.finditer(word):
        escaped, single, double, plain = found.groups()
        if double is not None:
            parts.append(re.sub(r'\\([$`"\\\n])', r"\1", double))
        else:
            parts.append(escaped or single or plain or "")
    return "".join(parts)


def find_command_lines(text: str) -> list[list[str]]:
    """The argv of every QEMU that a text starts: a shell's line, a script, libvirt's log, a copy
    of /proc/PID/cmdline. Lines that start none may have any quotes."""
    if "\0" in text:
        return [text[:MAX_TEXT].rstrip("\0").split("\0")]
    if len(text) > MAX_TEXT:
        raise UsageError("the text is too long", f"it has more than {MAX_TEXT} characters")
    found, longer = [], 64
    lines = _LINE_END.split(text)
    for place, line in enumerate(lines):
        if not STARTS.search(line) or line.lstrip().startswith("#"):
            continue
        first = _line_after(lines[:place])
        try:
            commands = list(_commands(line, first))
        except UsageError:
            longer -= 1  # a quote may go on for some lines; each try may cost the whole text
            if longer < 0:
                raise
            commands = [next(_commands("\n".join(lines[place:]), first), [])]
        found += [words[at:] for words in commands if (at := find_program(words)) is not None]
    return found


def _line_after(lines: Sequence[str]) -> int:
    """The number of the line after those, which may go on behind a backslash."""
    return 1 + sum(1 + line.count("\n") for line in lines)


def find_program(words: Sequence[str]) -> int | None:
    """Where QEMU stands among the words of a command: before its options."""
    for place, word in enumerate(words[:-1]):
        named = bool(PROGRAM.fullmatch(word))
        if word == "kvm":  # a program, unless it is an option's value
            named = place == 0 or not words[place - 1].startswith("-")
        if named and words[place + 1].startswith("-"):
            return place
    return None


def read_options(arguments: Iterable[str]) -> Iterator[QemuOption]:
    """Arguments (without the program) as options; an image that stands alone is ``hda``."""
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-") or word == "-":
            if not word.startswith(("$", "`")):  # of which nobody knows what it will be
                yield QemuOption("hda", word)
            continue
        name = word.lstrip("-")
        yield (
            QemuOption(name) if _WITHOUT_VALUE.fullmatch(name) else QemuOption(name, next(rest, ""))
        )


def read_keys(name: str, text: str) -> Flat:
    """The keys of an option's argument. Raises UsageError."""
    if text.lstrip().startswith("{"):
        return read_json(text, f"-{name}")
    keys: dict[str, str | None] = {}
    parts = _split_list(text)
    if len(parts) > _MAX_KEYS:
        raise UsageError(f"-{name}: it has more than {_MAX_KEYS} keys", text[:40])
    for place, part in enumerate(parts):
        key, equals, value = part.partition("=")
        if not equals and place == 0 and name in _IMPLIED:
            key, value = _IMPLIED[name], part
        elif not equals:
            off = part.startswith("no") and name in ("chardev", "mon")
            key, value = (part[2:], "off") if off else (part, "on")
        keys[key] = value
    return keys


def render_keys(name: str, keys: Flat) -> str:
    """The argument of an option: commas doubled; keys without a value are left out."""
    parts = [
        ("" if place == 0 and key == _IMPLIED.get(name) and "=" not in value else f"{key}=")
        + value.replace(",", ",,")
        for place, (key, value) in enumerate(keys.items())
        if value is not None
    ]
    return ",".join(parts)


def _split_list(text: str) -> list[str]:
    """``a=b,c=d,,e`` is ``a=b`` and ``c=d,e``."""
    return [part.replace("\0", ",") for part in text.replace(",,", "\0").split(",") if part]


def read_json(text: str, what: str) -> Flat:
    """A JSON object with flat keys. Raises UsageError."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it is no object")
        keys = dict(_flatten(content, ""))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: its JSON cannot be read", str(error)[:200]) from None
    if len(keys) > _MAX_KEYS:
        raise UsageError(f"{what}: its JSON has more than {_MAX_KEYS} keys")
    return keys


def _flatten(content: object, prefix: str) -> Iterator[tuple[str, str | None]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            yield from _flatten(value, f"{prefix}.{place}")
    elif isinstance(content, bool):
        yield prefix, "on" if content else "off"
    else:
        yield prefix, None if content is None else str(content)


def read_config_file(text: str, name: str) -> list[QemuOption]:
    """A file as -readconfig takes it. Raises UsageError with the line."""
    options: list[QemuOption] = []
    keys: dict[str, str | None] = {}
    for number, line in enumerate(text[:MAX_TEXT].splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if section := _SECTION.fullmatch(line):
            keys = {} if section[2] is None else {"id": section[2]}
            options.append(QemuOption(section[1], keys=keys))
        elif (setting := _SETTING.fullmatch(line)) and options:
            keys[setting[1]] = setting[2]
        else:
            raise UsageError(f"{name}:{number}: no line of a QEMU configuration", line[:80])
    return options


def child_keys(keys: Flat, child: str) -> Flat:
    """The options of an inline child: ``file.driver`` of ``file`` is ``driver``."""
    return {
        key[len(child) + 1 :]: value for key, value in keys.items() if key.startswith(child + ".")
    }


def base_name(path: str) -> str:
    """The last part of a path or URI."""
    return PurePosixPath(path).name or path
