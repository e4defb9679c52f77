"""The verb ``crash``: what does each setting lose when the power goes?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from diskproof.cli import options
from diskproof.cli.typed import require_consent
from diskproof.errors import Exit, UsageError
from diskproof.records.verdicts import PROFILES, Fault


def _complete_profiles(incomplete: str) -> Iterator[str]:
    """The last of the names, with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return (before + comma + name for name in PROFILES if name.startswith(last))


def _complete_app(incomplete: str) -> Iterator[tuple[str, str]]:
    from diskproof.crash.gallery import read_gallery

    yield from (
        (name, each.title) for name, each in read_gallery().items() if name.startswith(incomplete)
    )


Target = Annotated[
    Path | None,
    typer.Argument(
        metavar="[STUDY|DIR]", help="A study file; with --writer a folder; with --app nothing."
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=_complete_app,
        help="A program of the gallery in place of all these (`diskproof crash apps`).",
    ),
]
WriterOption = Annotated[
    str | None,
    typer.Option(metavar="CMD", help="A program to test; each line it prints is a promise."),
]
LogOption = Annotated[
    Path | None,
    typer.Option(
        "--block-log",
        metavar="LOG",
        help="In place of --writer: what dm-log-writes or QEMU's blklogwrites recorded of the disk "
        "that is the one file in DIR; each mark is a promise.",
        exists=True,
        dir_okay=False,
    ),
]
CheckOption = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Judges a state in its folder: exit 0 keeps, 1 loses (a count on stdout), 2 corrupts.",
    ),
]
StaysOption = Annotated[
    bool,
    typer.Option(
        "--stays",
        help="The check is started once: it reads a line for each state, its folder and (after a "
        "tab) the file with the promises, and answers with a line: 0 keeps, 1 N loses, 2 corrupts.",
    ),
]
SectorOption = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="With --writer: what a disk writes whole, 64 to 65536 (512; with --on 4096).",
    ),
]
GranularityOption = Annotated[
    str | None,
    typer.Option(
        "--discard-granularity",
        metavar="SIZE",
        help="With --writer: a device may carry out a part of a discard, in pieces of this size.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(metavar="N", help="With --writer: of the random states.", min=0)
]
CausesOption = Annotated[
    float | None,
    typer.Option(
        "--causes",
        parser=options.parse_budget,
        metavar="TIME",
        help="With --writer: look for causes and needless flushes, also where nothing is lost.",
    ),
]
OldContentOption = Annotated[
    bool,
    typer.Option(
        "--old-content",
        help="With --writer: try too that new parts of files hold what other files left.",
    ),
]
ProfilesOption = Annotated[
    str | None,
    typer.Option(
        "--profiles",
        metavar="FS,...",
        autocompletion=_complete_profiles,
        help="With --writer: judge the same recording by the rules of ext4, ext4-journal, "
        "ext4-writeback, xfs, btrfs, f2fs or f2fs-unwaited too.",
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="FS[,OPTIONS]",
        help="With --writer: on a real file system of this host (ext4, xfs or btrfs, with mount "
        "options), as root: each state of its disk is mounted.",
    ),
]
InGuestOption = Annotated[
    str | None,
    typer.Option(
        "--in-guest",
        metavar="FACTOR=LEVEL,...",
        help="With --writer or --app: in our guest, the program brought into a file system (--on) "
        "on a disk with these settings, e.g. cache=writeback,format=qcow2; `default`: as a study.",
    ),
]
PackagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="With --in-guest: Debian packages that the guest has, with all they depend on.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Search on a Dask cluster, e.g. tcp://HOST:8786."),
]


class StudyByDefault(TyperGroup):
    """``diskproof crash STUDY`` is ``diskproof crash study STUDY``."""

    def parse_args(self, ctx, args):  # type: ignore[no-untyped-def]  # the types are typer's own
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["study", *args]
        return super().parse_args(ctx, args)


crash = typer.Typer(
    cls=StudyByDefault,
    no_args_is_help=True,
    help=(
        "Say what each setting loses when the power goes, QEMU dies or a disk lies.\n\n"
        "diskproof crash STUDY judges all cells of a study, as `crash study STUDY` does.\n\n"
        "diskproof crash --writer CMD --check CMD DIR judges a program of your own: each line that "
        "it prints is a promise (`crash study --help` has the options).\n\n"
        "diskproof crash --app NAME judges a well-known program (`diskproof crash apps`)."
    ),
    short_help="Say what each setting loses when the power goes, QEMU dies or a disk lies.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(crash, name="crash")


@crash.command(name="study")
def crash_study(
    context: typer.Context,
    target: Target = None,
    app: AppOption = None,
    writer: WriterOption = None,
    block_log: LogOption = None,
    check: CheckOption = None,
    stays: StaysOption = False,
    sector: SectorOption = None,
    discards: GranularityOption = None,
    seed: SeedOption = None,
    causes: CausesOption = None,
    old_content: OldContentOption = False,
    profiles: ProfilesOption = None,
    on: OnOption = None,
    in_guest: InGuestOption = None,
    packages: PackagesOption = None,
    cluster: ClusterOption = None,
    store: options.StoreOption = options.DEFAULT_STORE,
    budget: options.BudgetOption = None,
    retry: options.RetryOption = False,
    destroy_data: options.DestroyOption = False,
    make: options.MakeOption = False,
    wait: options.WaitOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Record a writer in every stack of a study and check what crashes leave of its promises.

    Exit code 1: a promise was broken (not by a disk that lies), or nothing could be said.

    diskproof crash studies/crash.toml

    diskproof crash --writer './app --data .' --check './app --verify .' [--on ext4] data

    diskproof crash --app git [--on ext4] [--in-guest cache=writeback,format=qcow2]
    """
    from diskproof.cli import crash_program as programs
    from diskproof.cli.conduct import Order

    order = Order(context, store, budget, retry, quiet, as_json, wait)
    where = on, cluster, in_guest, packages
    own = programs.ProgramOptions(
        stays, sector, discards, seed, causes, old_content, profiles, *where
    )
    asked = programs.CrashTarget(target, app, writer, block_log, check)
    if target is None or asked.is_program:
        for_study = {options.DESTROY_DATA: destroy_data, "--make": make}
        return programs.crash_asked(order, asked, own, for_study)
    return programs.crash_of_study(order, target, own, make=make, destroy_data=destroy_data)


@crash.command()
def apps(as_json: options.JsonOption = False) -> int:
    """List the programs that --app knows: what each promises, and what brings it.

    diskproof crash --app NAME tests one as it is installed here.
    """
    from diskproof.cli.terminal import console, print_json
    from diskproof.crash.gallery import gallery_json
    from diskproof.report.crash.table import render_gallery

    found = gallery_json()
    if as_json:
        print_json(found)
    else:
        console().print(render_gallery(found))
    return Exit.OK


@crash.command()
def unsynced(
    target: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The folder that --writer works on.")
    ] = None,
    app: AppOption = None,
    writer: WriterOption = None,
    budget: Annotated[
        float,
        typer.Option(parser=options.parse_budget, metavar="TIME", help="The program's time."),
    ] = "1m",  # type: ignore[assignment]  # the parser makes it a number
    as_json: options.JsonOption = False,
) -> int:
    """Run a program in a copy of a folder and tell what a power cut would take, by file, live.

    Exit code 1 when something is not durable at the end. Nothing is judged and nothing stored.

    diskproof crash unsynced --writer './app --data .' data

    diskproof crash unsynced --app git
    """
    from diskproof.cli.crash_unsynced import tell_unsynced

    return tell_unsynced(target, app, writer, budget, as_json)


@crash.command()
def flushes(
    context: typer.Context,
    study_file: options.StudyFile,
    store: options.StoreOption = options.DEFAULT_STORE,
    destroy_data: options.DestroyOption = False,
    make: options.MakeOption = False,
    wait: options.WaitOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Ask of each guest of a study whether flushes are sent, and whether each layer passes them on.

    On the raw disk and on file systems with and without barriers; counted in the guest, in QEMU
    and on the host. The question to ask before turning on writeback. The store keeps none of it;
    `diskproof status` sees there that it goes on.
    """
    from diskproof.cli.conduct import require_quiet_store
    from diskproof.cli.crash import audit_guests
    from diskproof.cli.terminal import console, note, print_json
    from diskproof.process.host_lock import start_alone
    from diskproof.recording.folder import require_fuse
    from diskproof.report.crash.table import render_flushes
    from diskproof.store import open_store
    from diskproof.study.load import load_study

    study = load_study(study_file, make)
    consent = require_consent(context, study, destroy_data)
    require_fuse()
    with start_alone(wait, note), open_store(store, create=True) as opened:
        require_quiet_store(opened)
        found = audit_guests(study, consent, opened)
    if as_json:
        print_json(found)
    else:
        console().print(render_flushes(found))
    return Exit.OK


@crash.command()
def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a crash run.")],
    fault: Annotated[Fault, typer.Option(help="Under which fault it lost something.")] = "power",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="A new folder for the state.")
    ] = None,
    worst: Annotated[
        bool, typer.Option("--worst", help="The state that lost most, not the smallest loss.")
    ] = False,
    cause: Annotated[
        int | None,
        typer.Option(
            "--cause", metavar="N", help="This cause as a folder for a maintainer.", min=1
        ),
    ] = None,
    store: options.StoreOption = options.DEFAULT_STORE,
    as_json: options.JsonOption = False,
) -> int:
    """Make a stored loss again as files, and check it again.

    Every loss in a table has its command: `diskproof crash reproduce RUN --fault power`. With
    --cause N the folder is one to send: the state, a script that checks it without diskproof, the
    story, and a JUnit report.
    """
    from diskproof.cli.terminal import print_json
    from diskproof.crash import reproduce as again
    from diskproof.crash.case_folder import make_case_folder
    from diskproof.store import open_store

    with open_store(store) as opened:
        found = opened.crash_run(run)
    name = f"crash-{run[:8]}-{fault}"
    if cause is not None:
        if worst:
            raise UsageError("--cause and --worst do not go together", "each is another state")
        made = make_case_folder(found, fault, cause, to or Path(f"{name}-cause-{cause}"))
    else:
        made = again.reproduce(found, fault, to or Path(name), worst=worst)
    if as_json:
        print_json(again.state_json(made))
    else:
        print("\n".join(again.state_lines(made)))
    return Exit.FELL_SHORT if made.loss else Exit.OK


@crash.command(name="block-log")
def block_log(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a crash run.")],
    to: Annotated[Path, typer.Option("--to", metavar="LOG", help="A new file.")],
    disk: Annotated[
        str | None, typer.Option(metavar="NAME", help="The file, where there are several.")
    ] = None,
    store: options.StoreOption = options.DEFAULT_STORE,
    as_json: options.JsonOption = False,
) -> int:
    """Write a recorded disk as a log of dm-log-writes, for its replay tool and others.

    It begins with the disk as it was before (onto a disk of zeros); each promise is a mark.
    Replayed up to a mark, the disk holds what was safe by then, and nothing else.
    """
    from diskproof.cli.terminal import print_json
    from diskproof.crash import block_log as export
    from diskproof.crash.reproduce import unpack_evidence
    from diskproof.process.scratch import start_scratch_dir
    from diskproof.store import open_store

    with open_store(store) as opened:
        found = opened.crash_run(run)
    with start_scratch_dir(large=True) as room:
        base, log = unpack_evidence(found, room)
        made = export.export_log(log, base, disk, to)
    if as_json:
        print_json(export.exported_json(made, to))
    else:
        print(f"{to}: {made.entries:,} entries of {made.disk}, {made.promises:,} marks of promises")
    return Exit.OK
