"""What our native programs say of themselves, read from their --help."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.native import require_native

TOOLS = tuple(
    f"diskproof-{name}"
    for name in (
        *("ledger", "monitor", "nocache", "recordfs"),
        *("states", "sync-drop", "sync-trace", "sync-ways"),
    )
)
"""The programs that people start by their own name."""
HELP_SECONDS = 30.0


@dataclass(frozen=True)
class Row:
    """An option, an argument, a command or an example, and what is told of it, paragraph by
    paragraph; one that starts with ``- `` is an item of a list."""

    name: str
    told: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """Rows under a title, or sentences where there are no rows."""

    title: str
    rows: tuple[Row, ...]
    text: str


@dataclass(frozen=True)
class Help:
    """``what`` the program does in a phrase, ``more`` of it in paragraphs, its ``usage`` without
    its name, one for each form."""

    what: str
    more: tuple[str, ...]
    usage: tuple[str, ...]
    sections: tuple[Section, ...]

    def rows(self, *titles: str) -> Iterator[Row]:
        """Those of some sections; of all sections when none is named."""
        for section in self.sections:
            if section.title in titles or not titles:
                yield from section.rows


def ask_help(program: str, *command: str, folder: Path | None = None) -> Help:
    """The help of a program, or of one of its commands."""
    path = folder / program if folder else require_native(program)
    argv = [path, *command, "--help"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=HELP_SECONDS)
    return parse_help(done.stdout, " ".join((program, *command)))


def parse_help(text: str, name: str) -> Help:
    """The parts of a help text. Raises ValueError when it has no line of usage."""
    above, found, rest = text.partition("Usage:")
    if not found:
        raise ValueError(f"{name} --help has no usage")
    usage, _, rest = rest.partition("\n\n")
    first, *more = (" ".join(each.split()) for each in above.strip().split("\n\n"))
    what, _, remainder = first.partition(". ")
    forms = (line.strip().removeprefix(name).strip() for line in usage.strip().splitlines())
    blocks = re.split(r"\n\n(?=\S)", rest.strip("\n"))
    return Help(
        what.rstrip("."),
        tuple(filter(None, (remainder, *more))),
        tuple(forms),
        tuple(_section(block) for block in blocks if block.strip()),
    )


def _section(block: str) -> Section:
    title, _, rest = block.partition(":")
    if not rest.startswith("\n"):  # a sentence, wrapped
        return Section(title, (), " ".join(rest.split()))
    return Section(title, tuple(_rows(rest.strip("\n").splitlines())), "")


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    name, told = "", [""]
    for line in lines:
        found = re.match(r" {2,6}(\S.*?)(?: {2,}(\S.*))?$", line)
        if found and (not name or not line.startswith(" " * 7)):
            if name:
                yield _row(name, told)
            name, told = found[1], [found[2] or ""]
        elif not line.strip() or line.lstrip().startswith("- "):
            told.append(line.strip())
        else:
            told[-1] = f"{told[-1]} {line.strip()}"
    if name:
        yield _row(name, told)


def _row(name: str, told: Sequence[str]) -> Row:
    return Row(name, tuple(" ".join(each.split()) for each in told if each.strip()))


def find_options(row: Row) -> tuple[str, ...]:
    """How an option is written, the short way first; nothing for what is no option."""
    return tuple(re.findall(r"(?:^|(?<=, ))(--?[A-Za-z0-9][\w-]*)", row.name))


def takes_value(row: Row) -> bool:
    return bool(re.search(r"[ =\[]<", row.name))


def find_choices(row: Row) -> tuple[str, ...]:
    """The values that an option may have, where it says so."""
    items = (re.match(r"- ([\w-]+)", each) for each in row.told)
    return tuple(item[1] for item in items if item)
