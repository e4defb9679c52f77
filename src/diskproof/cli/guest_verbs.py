"""Verbs about the guest: ``guest build``, ``guest export``, ``guest import``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli.options import JsonOption
from diskproof.errors import Exit, UsageError

if TYPE_CHECKING:
    from diskproof.cli.outputs import ExportedGuestJson, ImportedGuestJson
    from diskproof.guest.ours.parcel import Tell

guest = typer.Typer(no_args_is_help=True, help="The Linux guest that measurements run in.")

ExtraOption = Annotated[
    str,
    typer.Option("--with", metavar="NAME", help="More in it: postgres, servers, storage or zfs."),
]
PackagesOption = Annotated[
    str,
    typer.Option(
        "--packages", metavar="NAME,...", help="Debian packages in it, with all they depend on."
    ),
]


def register(app: typer.Typer) -> None:
    app.add_typer(guest, name="guest")


@guest.command()
def build(
    extra: ExtraOption = "",
    listed: PackagesOption = "",
    minimal: Annotated[
        bool,
        typer.Option("--minimal", help="Of this host's kernel and programs: without packages."),
    ] = False,
    kernel: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A minimal guest's; else the host's.")
    ] = None,
    modules: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of that kernel, named by its release.")
    ] = None,
) -> int:
    """Build the guest (kernel, initramfs, root); does nothing when it is up to date.

    One with further packages is a second guest; crash studies that need it build it themselves. A
    minimal one needs no network; it is used where there is no other, and says what it lacks.
    """
    from diskproof.cli.terminal import note
    from diskproof.guest.ours.build import build_guest

    extra = _read_extra(extra, listed)
    if not minimal and (kernel or modules):
        raise UsageError("--kernel and --modules are for a minimal guest", hint="add --minimal")
    if minimal:
        return _build_minimal(extra, kernel, modules)
    files = build_guest(note, extra)
    print(files.kernel.parent)
    return Exit.OK


def _build_minimal(extra: str, kernel: Path | None, modules: Path | None) -> int:
    from diskproof.cli.terminal import note
    from diskproof.guest.ours.build import find_whole
    from diskproof.guest.ours.minimal import HostKernel, build_minimal, find_host_kernel

    if extra or (kernel is None) != (modules is None):
        what = "a minimal guest has no --with or --packages"
        raise UsageError(f"{what}, and --kernel and --modules come together")
    found = HostKernel(kernel, modules) if kernel and modules else find_host_kernel()
    if not found.is_whole:
        what = f"{kernel} and {modules} are no kernel and its modules"
        raise UsageError(what, "a file, and a folder with modules.builtin, are wanted")
    files = build_minimal(found, note)
    for each in files.lacks:
        note(f"it lacks {each}")
    if find_whole() is not None:
        note("it is not used: there is a guest made of packages")
    print(files.kernel.parent)
    return Exit.OK


@guest.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to write, e.g. guest.tar.gz.")],
    extra: ExtraOption = "",
    listed: PackagesOption = "",
    as_json: JsonOption = False,
) -> int:
    """Write the built guest to one file, for a host that cannot build it; see `guest import`.

    Prints the file's digest as sha256sum does.
    """
    from diskproof.cli.terminal import note, print_json
    from diskproof.guest.ours.travel import export_guest
    from diskproof.units import render_bytes

    extra = _read_extra(extra, listed)
    with _shown_progress("packing") as tell:
        done = export_guest(file, extra, tell)
    manifest = done.manifest
    note(f"guest {manifest.id}, Debian {manifest.suite}, in {render_bytes(done.size)}")
    if as_json:
        told: ExportedGuestJson = {
            "file": str(file),
            "sha256": done.sha256,
            "bytes": done.size,
            "id": manifest.id,
            "suite": manifest.suite,
            "extra": manifest.extra,
        }
        print_json(told)
    else:
        print(f"{done.sha256}  {file}")
    return Exit.OK


@guest.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `guest export` wrote.")],
    sha256: Annotated[
        str | None,
        typer.Option("--sha256", metavar="HEX", help="Refuse a file with another digest."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Bring a guest from a file of `guest export`; it needs no network, no Debian and no tools.

    What is damaged, or of another version of diskproof, is refused. From then on it is the guest.
    """
    from diskproof.cli.terminal import note, print_json
    from diskproof.guest.ours.travel import import_guest
    from diskproof.store.budget import build_wall

    build_wall(reckons=False)
    with _shown_progress("unpacking") as tell:
        done = import_guest(file, sha256, tell)
    guest, manifest = done.guest, done.manifest
    told = "it was here already" if done.there else "it is here now"
    note(f"guest {guest.id}, Debian {manifest.suite}, Linux {guest.kernel_release}: {told}")
    if guest.id != manifest.id:
        note(f"it was {manifest.id} where it was exported: diskproof's own programs differ")
    if as_json:
        found: ImportedGuestJson = {
            "id": guest.id,
            "exported_id": manifest.id,
            "folder": str(guest.kernel.parent),
            "suite": manifest.suite,
            "extra": manifest.extra,
            "sha256": done.sha256,
            "there_before": done.there,
        }
        print_json(found)
    else:
        print(guest.kernel.parent)
    return Exit.OK


def _read_extra(extra: str, listed: str) -> str:
    """What the guest has beyond the ordinary one, as ``study/guest_root.py`` has it."""
    from diskproof.guest.ours.packages import EXTRA_PACKAGES
    from diskproof.study.guest_root import name_root

    if extra and extra not in EXTRA_PACKAGES:
        raise UsageError(f"no guest is built with {extra!r}", f"known: {', '.join(EXTRA_PACKAGES)}")
    try:
        return name_root(extra, listed.split(",") if listed else ())
    except ValueError as error:
        why = "names of Debian packages, with commas between them"
        raise UsageError(f"--packages {listed}: {error}", why) from None


@contextmanager
def _shown_progress(what: str) -> Iterator[Tell]:
    """A bar on a terminal, gone at the end; elsewhere nothing."""
    from rich.progress import Progress

    from diskproof.cli.terminal import progress_console

    console = progress_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
