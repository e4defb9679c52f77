"""Rust without a compiler: a scanner that tells code from comments and literals, no more."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from shape.python_source import MAX_COLUMNS
from shape.tree import Tree

_TOKEN = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)")
  | (?P<string>\b[bc]?"(?:[^"\\]|\\.)*" | "(?:[^"\\]|\\.)*")
  | (?P<char>\bb?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.))'
           | '(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.))')
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_FUNCTION = re.compile(r"\bfn\s+(\w+)")
_OPENING, _CLOSING = "([{", ")]}"


def split_comments(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text with every comment and literal blanked out (its line breaks stay, so that places
    are those of the text), and where the comments are: (first, last) as offsets."""
    kept: list[str] = []
    comments = []
    position = 0
    while match := _TOKEN.search(text, position):
        end = _token_end(text, match)
        if match["line"] is not None or match["block"] is not None:
            comments.append((match.start(), end))
        kept += text[position : match.start()], _blank(text[match.start() : end])
        position = end
    return "".join([*kept, text[position:]]), comments


def _token_end(text: str, match: re.Match[str]) -> int:
    if match["raw"] is not None:
        closing = '"' + match["hashes"]
        found = text.find(closing, match.end())
        return len(text) if found < 0 else found + len(closing)
    if match["block"] is None:
        return match.end()
    depth, position = 1, match.end()
    while depth and (edge := _BLOCK_EDGE.search(text, position)):
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position if depth == 0 else len(text)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of every function that has a body."""
    code, _ = split_comments(text)
    for match in _FUNCTION.finditer(code):
        end = _body_end(code, match.end())
        if end is not None:
            first = code.count("\n", 0, match.start()) + 1
            yield match[1], first, code.count("\n", match.start(), end) + 1


def _body_end(code: str, position: int) -> int | None:
    """Where the body of a signature ends; None for one that a semicolon ends."""
    depth, in_body = 0, False
    for place in range(position, len(code)):
        letter = code[place]
        if letter == ";" and depth == 0:
            return None
        in_body = in_body or (letter == "{" and depth == 0)
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if in_body and depth == 0:
            return place
    return None


def long_functions(tree: Tree, limit: int) -> Iterator[str]:
    for file in tree.rust_files:
        for name, first, length in functions(file.read_text()):
            if length > limit:
                yield f"{tree.short(file)}:{first} {name}: {length} lines"


def long_comments(tree: Tree) -> Iterator[str]:
    """Lines that a comment carries past column 100."""
    for file in tree.rust_files:
        text = file.read_text()
        numbers = {
            number
            for first, last in split_comments(text)[1]
            for number in range(text.count("\n", 0, first), text.count("\n", 0, last) + 1)
        }
        lines = text.splitlines()
        for number in sorted(numbers):
            if number < len(lines) and len(lines[number]) > MAX_COLUMNS:
                yield f"{tree.short(file)}:{number + 1}: {len(lines[number])} columns"


def count_lines(files: Sequence[Path]) -> dict[str, int]:
    """Physical lines: all of them, blank ones, and those that hold nothing but a comment."""
    counts = {"lines": 0, "blank": 0, "comment": 0}
    for file in files:
        text = file.read_text()
        code = split_comments(text)[0].splitlines()
        for line, rest in zip(text.splitlines(), code, strict=True):
            counts["lines"] += 1
            counts["blank"] += not line.strip()
            counts["comment"] += bool(line.strip()) and not rest.strip() and '"' not in line
    return counts


def dialect(tree: Tree, words: Sequence[str]) -> Iterator[str]:
    """Where identifiers are words of our own, for which the field has others."""
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    for file in tree.rust_files:
        if found := pattern.findall(split_comments(file.read_text())[0]):
            yield f"{tree.short(file)}: {len(found)}"
