"""The verb ``advise``: which line do I paste?"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption, complete_study
from diskproof.errors import DiskproofError, Exit, UsageError

if TYPE_CHECKING:
    from diskproof.advice.dialect import Target
    from diskproof.records import StudyRecord
    from diskproof.report.advice.answer import Answer
    from diskproof.report.view import StudyView
    from diskproof.store import Store

MANAGERS = (("proxmox", "/etc/pve"), ("libvirt", "virsh"), ("incus", "incus"))
"""Whose folder or program is looked for, in this order; QEMU's own words are for the rest."""
MAX_FILES = 200


def _complete_dialect(incomplete: str) -> Iterator[str]:
    from diskproof.advice.dialects import DIALECTS

    yield from (name for name in DIALECTS if name.startswith(incomplete))


def _complete_workload(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Names of the workloads in the store that the command line names so far."""
    from diskproof.store import open_store

    place = context.params.get("store") or DEFAULT_STORE
    with suppress(DiskproofError), open_store(place) as store:
        names = dict.fromkeys(c.workload.name for study in store.studies() for c in study.cells)
        yield from (name for name in names if name.startswith(incomplete))


StudyNameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME|FILE",
        autocompletion=complete_study,
        help="A study's name, id or file; else the latest with results.",
    ),
]
DialectOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="NAME",
        autocompletion=_complete_dialect,
        help="qemu, libvirt, virt-install, proxmox, incus, kubevirt or nova; "
        "else what is found here.",
    ),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", autocompletion=_complete_workload, help="Only for this."),
]
KeepOption = Annotated[
    str | None,
    typer.Option(metavar="FAULT", help="What data must outlive: power, qemu-kill or none."),
]
MigratesOption = Annotated[
    bool, typer.Option("--migrates", help="The machine is to move while it runs.")
]
DisposableOption = Annotated[
    bool, typer.Option("--disposable", help="The disk may be lost: unsafe will do, too.")
]
ImageOption = Annotated[str, typer.Option(metavar="PATH", help="The disk's image or volume.")]
MachineOption = Annotated[str, typer.Option(metavar="NAME", help="The machine's name or id.")]
DiskOption = Annotated[str, typer.Option(metavar="KEY", help="The disk's name there: scsi0.")]


def register(app: typer.Typer) -> None:
    app.command()(advise)


def advise(
    study: StudyNameArgument = None,
    dialect: DialectOption = None,
    workload: WorkloadOption = None,
    keep: KeepOption = None,
    migrates: MigratesOption = False,
    disposable: DisposableOption = False,
    image: ImageOption = "",
    machine: MachineOption = "",
    disk: DiskOption = "",
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> int:
    """Say which line to paste: the fastest settings that keep data, in your manager's own words.

    Exit code 1 when nothing is proved to keep what is asked for.

    diskproof advise --for proxmox --machine 100 --disk scsi0

    diskproof advise quick --for libvirt --workload sync-write-4k --migrates
    """
    from diskproof.advice.dialects import require_dialect
    from diskproof.cli.terminal import note, print_json
    from diskproof.report.advice.answer import answers_json, find_answers
    from diskproof.report.advice.choose import Wish
    from diskproof.report.advice.keeping import require_keep
    from diskproof.store import open_store

    chosen = require_dialect(dialect or find_manager())
    faults = require_keep(keep or ("none" if disposable else "power"))
    target = find_target(chosen.name, image, machine, disk)
    with open_store(store) as opened:
        view = _find_view(opened, study, workload)
    wish = Wish(faults, migrates, disposable, file=find_study_file(view.study) or "")
    answers = find_answers(view, wish, chosen, target, workload or "", find_filesystems(view))
    _require_answers(answers, view)
    if as_json:
        print_json(answers_json(view, answers))
    else:
        if dialect is None:
            note(f"for {chosen.title}; --for NAME asks for others")
        print_answers(view, answers)
    return Exit.OK if all(each.keeps for each in answers) else Exit.FELL_SHORT


def _require_answers(answers: tuple[Answer, ...], view: StudyView) -> None:
    if not answers:
        raise UsageError(
            f"study {view.study.name} has no speeds of a machine's disk",
            "what is measured on the bare host or in a container tells nothing of its settings",
            "measure frontend = daemon or guest",
        )


def find_manager() -> str:
    """The dialect of what manages machines on this host."""
    from diskproof.process.start import find_tool

    for name, mark in MANAGERS:
        if Path(mark).is_dir() if mark.startswith("/") else find_tool(mark) is not None:
            return name
    return "qemu"


def find_target(dialect: str, image: str, machine: str, disk: str) -> Target:
    """The disk that is asked for, with its line as it is found on this host: a line is written
    whole, with all that was in it. Raises UsageError for a disk that the machine has not."""
    from diskproof.advice.dialect import Target
    from diskproof.host.machines import find_machines

    block = image.startswith("/dev/")
    named = Target(image=image, block=block, machine=machine, disk=disk)
    if not machine:
        return named
    there = [each for each in find_machines().machines if machine in (each.name, each.id)]
    disks = [each for owner in there if owner.manager == dialect for each in owner.disks]
    held = [each for each in disks if not disk or each.name == disk]
    if disks and not held:
        names = ", ".join(each.name for each in disks)
        raise UsageError(f"{machine} has no disk {disk}", f"it has {names}")
    if not held:
        return named
    first = held[0]
    return Target(
        image=image or first.image,
        block=block or (not image and first.kind == "block"),
        machine=machine,
        disk=first.name,
        existing=first.line,
    )


def _find_view(store: Store, wanted: str | None, workload: str | None) -> StudyView:
    """The study on one host: this one, or the one with the most runs. Raises UsageError."""
    from diskproof.report.read import read_views

    study = _require_study(store, wanted)
    views = [view for view in read_views(store, [study.id]) if view.workloads]
    if not views:
        raise UsageError(
            f"study {study.name} has no results in {store.place}",
            "an answer needs speeds",
            f"`diskproof run {find_study_file(study) or 'STUDY.toml'}` measures them",
        )
    here = platform.node()
    view = max(views, key=lambda each: (each.host.name == here, each.runs))
    names = [load.name for load in view.workloads]
    if workload is not None and workload not in names:
        raise UsageError(f"no workload {workload!r}", f"there are {', '.join(names)}")
    return view


def _require_study(store: Store, wanted: str | None) -> StudyRecord:
    studies = store.studies()
    if wanted is None:
        found = next((each for each in reversed(studies) if store.results(each.id)), None)
        if found is None:
            hint = "`diskproof run studies/quick.toml` makes some in a few minutes"
            raise UsageError(f"there are no results in {store.place} yet", hint=hint)
        return found
    by_name = store.find_study(wanted) or store.find_study(_id_of_file(wanted))
    if by_name is None:
        held = ", ".join(dict.fromkeys(each.name for each in studies)) or "no study"
        raise UsageError(f"no study {wanted!r} in {store.place}", f"it holds {held}")
    return by_name


def _id_of_file(name: str) -> str:
    """The id of the study in a file; raises StudyError for one that is none."""
    from diskproof.study.load import load_study

    path = Path(name)
    return load_study(path).id if path.suffix == ".toml" or path.is_file() else name


def name_files(views: Sequence[StudyView]) -> Sequence[StudyView]:
    """Views with the files of their studies, for the commands that their answers name."""
    files = {study_id: str(path) for study_id, path in _study_files()} if views else {}
    return tuple(replace(view, file=files.get(view.study.id, "")) for view in views)


def find_study_file(study: StudyRecord) -> str | None:
    """The file that a stored study was made from, where it lies here or in ``studies``."""
    return next((str(path) for found, path in _study_files() if found == study.id), None)


def _study_files() -> Iterator[tuple[str, Path]]:
    """Studies that lie here by their ids."""
    from diskproof.study.load import load_study

    places = (
        path for folder in (Path(), Path("studies")) for path in sorted(folder.glob("*.toml"))
    )
    for path in islice(places, MAX_FILES):
        with suppress(DiskproofError):
            yield load_study(path).id, path


def find_filesystems(view: StudyView) -> dict[str, str]:
    """What the folders of a study's backings are on, where it was made on this host."""
    from diskproof.backings.place import find_filesystem
    from diskproof.report.barred import read_backings_of
    from diskproof.study.backings import chain

    if view.host.name != platform.node():
        return {}
    found = {}
    for name, spec in read_backings_of(view.study).items():
        lowest = chain(spec)[-1]
        if lowest.kind == "directory":
            folder = Path(lowest.option("path")).absolute()
            there = next(each for each in (folder, *folder.parents) if each.is_dir())
            found[name] = find_filesystem(there)
    return found


def print_answers(view: StudyView, answers: tuple[Answer, ...], *, conditions: bool = True) -> None:
    """A line to paste stands alone on its lines, as it is: no wrapping, nothing before it."""
    from diskproof.cli.terminal import console
    from diskproof.report.advice.answer import by_paste, render_opening, render_rest

    screen = console()
    screen.print(f"study {view.study.name}, host {view.host.name}", style="bold", markup=False)
    for group in by_paste(answers):
        screen.print()
        screen.print(render_opening(group))
        if paste := group[0].paste:
            screen.print()
            _print_whole(paste.text)
            if paste.create:
                screen.print("The image, if it is to be made new:", markup=False)
                screen.print()
                _print_whole(paste.create)
        screen.print(render_rest(group, conditions))


def _print_whole(text: str) -> None:
    """Lines of others for a shell or an editor: as they are, but for what steers a terminal."""
    kept = (char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text.strip("\n"))
    print("".join(kept), end="\n\n", flush=True)
