"""The verb ``audit``: is what runs here safe, and which line makes it so?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli import options
from diskproof.errors import Exit, UsageError
from diskproof.process.plain_file import read_plain

if TYPE_CHECKING:
    from diskproof.records.verdicts import VerdictRow
    from diskproof.records.virtual_machines import Machine, MachineJudgement
    from diskproof.report.layout import Shown
    from diskproof.report.machines.table import Whole

MAX_BYTES = 4 << 20
MAX_DISKS = 2000
CLAIM_CHARS = 64 << 10
"""A configuration has so many bytes and disks at most, and is known by how it begins."""


def register(app: typer.Typer) -> None:
    app.command()(audit)


def audit(
    context: typer.Context,
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|PID|FILE]...", help="Machines or configurations; default: all found."
        ),
    ] = None,
    guest: Annotated[
        bool, typer.Option("--guest", help="Ask the guests' agents, too; files are read only.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure its settings against the best alternatives.")
    ] = False,
    store: options.StoreOption = options.DEFAULT_STORE,
    budget: options.BudgetOption = None,
    wait: options.WaitOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Judge every disk of virtual machines: what is set, what runs, and the line to change.

    Proved: the store has a verdict for such a disk. By rule: a cited rule decides. Unknown is never
    called safe. Nothing is disturbed and nothing written. Exit code 1 when a disk loses or may lose
    what was promised.

    diskproof audit

    diskproof audit web1 /etc/pve/qemu-server/100.conf
    """
    from diskproof.advice.judge import judge_machine
    from diskproof.cli.terminal import print_json
    from diskproof.report.machines.proof import prove_machine
    from diskproof.report.machines.table import machines_json, render_machines

    found, obstacles = find_wanted(wanted or ())
    found, more = _ask_guests(found) if guest else (found, [])
    obstacles += more
    rows = _read_verdicts(store)
    judged = [prove_machine(judge_machine(machine), rows) for machine in found]
    if measure:
        from diskproof.cli import audit_measure, conduct

        order = conduct.Order(context, store, budget, False, quiet, as_json, wait)
        return audit_measure.measure_machines(order, judged)
    if as_json:
        print_json(machines_json(judged, obstacles))
    else:
        _print_parts(render_machines(judged, obstacles))
    return Exit.FELL_SHORT if falls_short(judged) else Exit.OK


def _print_parts(parts: Iterable[Shown | Whole]) -> None:
    from diskproof.cli.terminal import console
    from diskproof.report.machines.table import Whole

    screen = console()
    for part in parts:
        if isinstance(part, Whole):
            kept = (
                c if c.isprintable() or c in "\n\t" else "\ufffd" for c in part.text.strip("\n")
            )
            print("".join(kept), end="\n\n", flush=True)
        else:
            screen.print(part)


def falls_short(judged: Sequence[MachineJudgement]) -> bool:
    """Whether a disk loses or may lose what was promised."""
    return any(disk.falls_short for each in judged for disk in each.disks)


def find_wanted(wanted: Sequence[str]) -> tuple[list[Machine], list[str]]:
    """The machines that were asked for, with what lies below those that are here; and what could
    not be looked at. Raises UsageError for one that is not found, and for a file that is none."""
    from diskproof.host.machines import find_machines

    files = [word for word in wanted if _is_file(word)]
    names = [word for word in wanted if word not in files]
    machines = [machine for word in files for machine in read_file(Path(word))]
    if wanted and not names:
        return machines, []
    found = find_machines()
    chosen = [_require_machine(word, found.machines, found.obstacles) for word in names]
    here = [each for several in chosen for each in several] if names else list(found.machines)
    return [*(_look_below(machine) for machine in here), *machines], list(found.obstacles)


def _is_file(word: str) -> bool:
    try:
        return "/" in word or Path(word).exists()
    except (OSError, ValueError):
        return False


def _require_machine(
    word: str, machines: Sequence[Machine], obstacles: Sequence[str]
) -> list[Machine]:
    same = [each for each in machines if word in (each.name, each.id, str(each.pid))]
    if same:
        return same
    known = ", ".join(f"{each.name}" for each in machines) or "none"
    why = "; ".join([f"found here: {known}", *(f"not seen: {each}" for each in obstacles)])
    raise UsageError(f"no virtual machine {word!r} was found", why, "a file needs its path: ./FILE")


def _look_below(machine: Machine) -> Machine:
    from diskproof.host.below import read_below

    disks = [replace(disk, below=read_below(disk, machine.pid)) for disk in machine.disks]
    return replace(machine, disks=tuple(disks))


def read_file(path: Path) -> tuple[Machine, ...]:
    """The machines of one configuration file. Raises UsageError with what is wrong in it."""
    from diskproof.advice.dialects import READINGS

    text = _read_text(path)
    if path.parent.name == "qemu-server":  # Proxmox: what a storage is decides on defaults
        for above in path.absolute().parents[1:4:2]:
            if (storages := above / "storage.cfg").is_file():
                text = f"{_read_text(storages)}\n{text}"
    try:
        for reading in READINGS:
            if reading.claims(text[:CLAIM_CHARS]):
                return _require_few(reading.read_machines(text, str(path)), path)
    except RecursionError:
        raise UsageError(f"{path}: not a configuration", "it is nested too deeply") from None
    known = ", ".join(reading.name for reading in READINGS)
    raise UsageError(f"{path}: not a configuration that can be read", f"there are {known}")


def _require_few(machines: tuple[Machine, ...], path: Path) -> tuple[Machine, ...]:
    disks = sum(len(machine.disks) for machine in machines)
    if disks > MAX_DISKS:
        raise UsageError(f"{path}: not a configuration", f"{disks} disks, more than {MAX_DISKS}")
    return machines


def _read_text(path: Path) -> str:
    """A regular file, whole; anything else could keep us waiting. NUL ends an argument in
    /proc/PID/cmdline, and that is text as well."""
    try:
        data = read_plain(path, MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read", error.strerror or "") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: not a configuration", f"it is larger than {MAX_BYTES >> 20} MiB")
    return data.decode("utf-8", "replace")


def _ask_guests(machines: Sequence[Machine]) -> tuple[list[Machine], list[str]]:
    from diskproof.host.guest_view import read_guest

    asked = [read_guest(each) if _runs(each) else each for each in machines]
    seen = [
        machine if isinstance(answer, str) else answer
        for machine, answer in zip(machines, asked, strict=True)
    ]
    return seen, [answer for answer in asked if isinstance(answer, str)]


def _runs(machine: Machine) -> bool:
    """Whether it runs here, as far as that was seen."""
    return (
        machine.pid is not None
        or "://" in machine.source
        and any(disk.running for disk in machine.disks)
    )


def _read_verdicts(store: str) -> list[VerdictRow]:
    """The verdicts of the store; without the default one there are none."""
    if store == options.DEFAULT_STORE and not Path(store).exists():
        return []
    from diskproof.store import open_store  # it is heavy

    with open_store(store) as opened:
        return opened.verdicts()
