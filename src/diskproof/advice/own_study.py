"""A study of one machine's own settings against what else its disk could have there."""

import json
import re

from diskproof.records.virtual_machines import Levels
from diskproof.study.factors import DIRECT, FACTOR_BY_NAME

ALTERNATIVES = (
    {"cache": "none", "aio": "threads"},
    {"cache": "none", "aio": "native"},
    {"cache": "none", "aio": "io_uring"},
    {"cache": "writeback", "aio": "threads"},
    {"cache": "writeback", "aio": "io_uring"},
)
"""What is put beside it: the modes that keep what is flushed and that managers offer."""
WORKLOADS = ("sync-write-4k", "rand-read-4k-d32")
_SAME = ("format", "discard", "detect-zeroes", "iothread", "cluster_size", "l2-cache-size", "bus")


def own_levels(levels: Levels) -> dict[str, str]:
    """Those that a study can set. Raises ValueError for a disk that no cell is like."""
    own = {
        name: level
        for name, level in levels.items()
        if name in (*_SAME, "cache", "aio") and _is_level(name, level)
    }
    if "cache" not in own:
        raise ValueError("its cache mode is not known")
    if own.get("format", "raw") != "qcow2":
        own = {k: level for k, level in own.items() if k not in ("cluster_size", "l2-cache-size")}
    own.setdefault("format", "raw")
    own.setdefault("aio", "threads")
    if own["aio"] == "native" and own["cache"] not in DIRECT:
        raise ValueError("aio=native without direct I/O does not start")
    if own.get("detect-zeroes") == "unmap" and own.get("discard") != "unmap":
        raise ValueError("detect-zeroes=unmap needs discard=unmap")
    return own


def _is_level(name: str, level: str) -> bool:
    factor = FACTOR_BY_NAME[name]
    if factor.kind == "bytes":
        return re.fullmatch(r"\d+[KMG]?", level) is not None
    return level in factor.levels


def study_name(machine: str, disk: str) -> str:
    """``audit-web1-vda``: a name that a study may have."""
    return "audit-" + re.sub(r"[^A-Za-z0-9._-]+", "-", f"{machine}-{disk}")[:56]


def render_study(name: str, folder: str, own: Levels) -> str:
    """The study's file: one cell as it runs and the alternatives, in a guest, in ``folder``."""
    cells = [dict(own)]
    for each in ALTERNATIVES:
        cell = {**own, **each}
        if cell not in cells:
            cells.append(cell)
    lines = [
        "# Written by `diskproof audit --measure`: the settings of a machine's disk as they are,",
        "# beside others on the same storage. Its image is not touched.",
        f"name = {json.dumps(name)}",
        f"workloads = {json.dumps(WORKLOADS)}",
        "[backings.there]",
        f"path = {json.dumps(folder, ensure_ascii=False)}",
        "[factors]",
        'frontend = "guest"',
        *(f"{factor} = {json.dumps(_levels(factor, cells))}" for factor in cells[0]),
    ]
    for cell in cells:
        lines += ["[[only]]", f"cache = {json.dumps(cell['cache'])}"]
        lines.append(f"aio = {json.dumps(cell['aio'])}")
    return "\n".join([*lines, *_RULES, ""])


_RULES = (
    "[protocol]",
    "blocks = 3",
    'size = "256MiB"',
    'runtime = "2s"',
    'ramp = "500ms"',
    "[crash]",
    "records = 64",
    'seconds = "3s"',
    'explore_seconds = "3s"',
)


def _levels(factor: str, cells: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(cell[factor] for cell in cells))
