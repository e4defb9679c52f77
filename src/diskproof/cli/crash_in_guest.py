"""``diskproof crash --writer CMD --check CMD DIR --in-guest FACTOR=LEVEL,...``: a program in our
guest, as the study that would ask the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from diskproof.backings import NO_CONSENT
from diskproof.cli.conduct import Order, conduct
from diskproof.cli.crash import CrashWords, start_crashing
from diskproof.cli.terminal import note
from diskproof.crash import gallery
from diskproof.crash.real_fs import SECTOR
from diskproof.errors import UsageError
from diskproof.guest.ours.build import build_guest
from diskproof.recording.folder import require_fuse
from diskproof.store import Store
from diskproof.study.backings import allow_making
from diskproof.study.crash import GUEST_FILE_SYSTEM_BYTES, USUAL_FAULTS, guest_extra
from diskproof.study.guest_program import ROOTS, measure_folder
from diskproof.study.load import Study, parse_study

SECONDS = 600.0
"""Without ``--budget``. A check in a guest takes a second or some."""
_WRITER_SECONDS = 60.0
"""A program that starts others does little in a second of an emulated guest."""
_SEARCHES = len(USUAL_FAULTS) - 1  # a killed guest leaves one state
_START_SECONDS = 30.0
DEFAULT = "default"
"""The word for the settings of a study that names none."""


@dataclass(frozen=True)
class GuestCall:
    """What was typed: commands, the folder, the settings, ``on`` (KIND[,OPTIONS]); ``packages`` are
    Debian's. A recipe has a ``name`` and may ``prepare`` the folder."""

    writer: str
    check: str
    folder: Path
    settings: str
    on: str | None
    sector: int | None
    seed: int | None
    discard_granularity: str | None = None
    packages: tuple[str, ...] = ()
    prepare: str = ""
    name: str = ""
    about: str = ""


def recipe_call(name: str, call: GuestCall) -> GuestCall:
    """The same of a recipe, whose scripts are the folder. Raises UsageError."""
    application = gallery.find_application(name)
    gallery.require_in_guest(application)
    return replace(
        call,
        writer=application.in_guest(application.writer),
        check=application.in_guest(application.check),
        prepare=application.in_guest(application.prepare),
        folder=application.folder,
        packages=(*call.packages, *application.packages),
        name=name,
        about=f"{application.title}: a promise is {application.promise}",
    )


def crash_in_guest(order: Order, call: GuestCall, cluster: str | None) -> int:
    """Raises UsageError, StudyError for settings that are none."""
    require_fuse()
    study = make_study(call, order.budget or SECONDS)
    if call.about and not order.quiet:
        note(call.about)
    # A program stops by itself: no budget forbids to start it.
    return conduct(replace(order, budget=None), partial(_start_in_guest, study, cluster))


@contextmanager
def _start_in_guest(study: Study, cluster: str | None, store: Store) -> Iterator[CrashWords]:
    """Without its guest nothing can be asked. Raises HostError where that cannot be built."""
    rules = study.crash
    root = rules.program.root if rules.program else ""
    if extra := guest_extra("", rules.filesystem, root):
        build_guest(note, extra)
    with start_crashing(study, NO_CONSENT, cluster, store) as words:
        yield words


def make_study(call: GuestCall, budget: float) -> Study:
    """The study: its backing is made in this folder, as that of every study."""
    if not call.folder.is_dir():
        raise UsageError(f"{call.folder} is no folder", "the program's data is copied from it")
    kind, _, options = (call.on or "ext4").partition(",")
    factors = _read_settings(call.settings)
    root = "".join(factors.pop("root", [])[-1:])
    cells = math.prod(len(levels) for levels in factors.values())
    writing = min(_WRITER_SECONDS, budget / 8)
    search = max(1.0, (budget / cells - writing - _START_SECONDS) / _SEARCHES)
    crash = {
        "writers": ["program"],
        "filesystem": kind,
        "mount": options,
        "size": _disk_bytes(call.folder, kind),
        "seconds": f"{writing:g}s",
        "explore_seconds": f"{search:g}s",
        "sector": call.sector or SECTOR,
        **({"discard_granularity": size} if (size := call.discard_granularity) else {}),
        **({} if call.seed is None else {"seed": call.seed}),
    }
    packages = [*dict.fromkeys(call.packages)]
    more = {"root": root, "packages": packages, "prepare": call.prepare, "name": call.name}
    program = {
        "folder": str(call.folder.resolve()),
        "writer": call.writer,
        "check": call.check,
        **{key: value for key, value in more.items() if value},
    }
    text = "\n".join(
        (
            f"name = {json.dumps(f'crash-{call.name or call.folder.resolve().name}'[:64])}",
            *_table("factors", {"frontend": "guest", **factors}),
            *_table("crash", crash),
            *_table("crash.program", program),
        )
    )
    study = parse_study(text, "--in-guest")
    return replace(study, backings=tuple(map(allow_making, study.backings)))


def _table(name: str, content: Mapping[str, object]) -> tuple[str, ...]:
    # What JSON says of strings, numbers and lists, TOML does.
    return f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in content.items())


def _read_settings(text: str) -> dict[str, list[str]]:
    """Levels by factor; a factor that stands twice has two."""
    factors: dict[str, list[str]] = {}
    for word in text.split(",") if text != DEFAULT else ():
        name, sign, level = word.partition("=")
        if not sign or not name.isidentifier() or name == "frontend":
            why = "they are FACTOR=LEVEL with commas between them, or the word default"
            hint = "cache=writeback,format=qcow2; a factor that stands twice has both levels"
            raise UsageError(f"--in-guest {text}: {word!r} is no setting", why, hint)
        factors.setdefault(name, []).append(level)
    if any(root not in ROOTS for root in factors.get("root", [])):
        raise UsageError("--in-guest: root names no guest", f"it is {', '.join(ROOTS)}")
    return factors


def _disk_bytes(folder: Path, kind: str) -> int:
    try:
        _, room = measure_folder(folder)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return 2 * GUEST_FILE_SYSTEM_BYTES.get(kind, 0) + room
