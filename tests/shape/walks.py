"""Through which files a cache level and a crash verdict pass, from the study's file to the page.

Two sorts of files count. Those in whose hands the value was (``walk.py``) while a small study was
run and its page written: one of a storage daemon with ``cache=directsync``, or a crash study whose
lying disk loses. And those that state or read the value's meaning by name, of which no run shows
all (each frontend needs another machine): ``names``, ``keys`` and ``rust_names`` in ``rules.toml``,
but for the rooms in ``besides``, which have the name for something else than the way to the page.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from shape.rust_source import split_comments
from shape.spelling import key_uses, names_used
from shape.touches import DIALECTS
from shape.tree import Tree

_LIMIT_SECONDS = 300.0
_STUDY = """
name = "walk"
workloads = ["sync-write-4k"]
[factors]
frontend = "daemon"
format = "raw"
cache = "{cache}"
[protocol]
blocks = 2
size = "16MiB"
runtime = "1s"
ramp = "0s"
[crash]
writers = "ledger"
records = 16
size = "16MiB"
explore_seconds = "10s"
"""
_WALKS = {
    "cache": ("directsync", "directsync", [["run", "study.toml"]]),
    "verdict": ("unsafe", "loses", [["crash", "study", "study.toml"]]),
}
_LOSS_FOUND = 1


def walked_files(tree: Tree, thing: str) -> dict[str, str]:
    """File -> a function of it that had the value, of a study that is really run."""
    cache, value, verbs = _WALKS[thing]
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="shape-") as folder:
        Path(folder, "study.toml").write_text(_STUDY.format(cache=cache))
        for verb in [*verbs, ["report", "-o", "page.html"]]:
            found |= _walk(tree, Path(folder), value, verb)
    if not any(name.startswith("report/") for name in found):
        raise RuntimeError(f"no page had {value!r}: nothing was measured here")
    return found


def _walk(tree: Tree, folder: Path, value: str, verb: Sequence[str]) -> dict[str, str]:
    out = folder / "found.json"
    program = Path(__file__).with_name("walk.py")
    done = subprocess.run(
        [sys.executable, program, tree.root / "src", out, value, *verb, "--store", "walk.sqlite"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree.root / "src")},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
    )
    if done.returncode not in (0, _LOSS_FOUND) or not out.exists():
        what = f"diskproof {' '.join(verb)} ended with {done.returncode}"
        raise RuntimeError(f"{what}: {done.stderr}")
    content = json.loads(out.read_text())
    return {file: ", ".join(sorted(places)[:2]) for file, places in content.items()}


def named_files(tree: Tree, rules: Mapping[str, Any]) -> dict[str, str]:
    """File -> why, of those that name the thing."""
    found = {}
    for module in tree.modules:
        if any(fnmatch(module.name, pattern) for pattern in rules["besides"]):
            continue
        if names_used(module, rules["names"]):
            found[module.name] = "names it"
        elif key_uses(module, rules["keys"]):
            found[module.name] = "asks for it by its key"
    word = re.compile(rf"\b({'|'.join(rules['rust_names']) or '$.'})\b")
    for file in tree.rust_files:
        name = tree.short(file)
        if fnmatch(name, rules["rust_files"]) and word.search(split_comments(file.read_text())[0]):
            found[name] = "names it"
    return found


def passed_files(tree: Tree, thing: str, rules: Mapping[str, Any]) -> list[str]:
    """Files with what of them it passes; the words of all managers are one, as for factors."""
    found = {}
    for file, why in {**named_files(tree, rules), **walked_files(tree, thing)}.items():
        found[DIALECTS if file.startswith(DIALECTS) else file] = why
    return [f"{file}: {why}" for file, why in sorted(found.items())]
