"""``monitor --html`` and ``--parquet``: what becomes of a recording, watched now or read back."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.cli.handover import MONITOR, PAGE_OPTIONS
from diskproof.errors import Exit, HostError, UsageError
from diskproof.process import native
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import run_in_terminal

PAGE_HELP = """
Pages and tables of what was seen (by `diskproof monitor` only):
      --html <FILE>     One page with pictures; it needs no network
      --parquet <FILE>  A table for other tools, in the shape of the CSV
      --from <FILE>     Of a recording made with --json or --csv, instead of watching now
  diskproof monitor -cdm --psi --html night.html 10
  diskproof monitor --html out.html --from rec.jsonl"""


@dataclass(frozen=True)
class PageWish:
    """Our part of the command line, and the native program's."""

    html: Path | None
    parquet: Path | None
    source: Path | None
    rest: tuple[str, ...]


def parse_page_options(arguments: Sequence[str]) -> PageWish:
    """Raises UsageError for an option without its file, or one that comes twice."""
    found: dict[str, Path] = {}
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, joined, value = argument.partition("=")
        if name not in PAGE_OPTIONS:
            rest.append(argument)
            continue
        value = value if joined else next(left, "")
        if not value or name in found:
            raise UsageError(f"{name} names one file", hint="`diskproof monitor --help` tells more")
        found[name] = Path(value)
    html, parquet, source = (found.get(name) for name in PAGE_OPTIONS)
    return PageWish(html, parquet, source, tuple(rest))


def make_pages(arguments: Sequence[str]) -> int:
    """Watch, or read a recording; then write what is asked for."""
    wish = parse_page_options(arguments)
    for target in filter(None, (wish.html, wish.parquet)):
        _require_folder(target)
    if wish.source is not None:
        return _make_from_recording(wish, wish.source)
    if any(each.partition("=")[0] in ("--json", "--list") for each in wish.rest):
        raise UsageError(
            "--json and --list do not go with --html and --parquet",
            hint="record with `--json FILE` first, then `--html OUT --from FILE`",
        )
    with start_scratch_dir(large=True) as folder:
        recording = folder / "recording.jsonl"
        program = str(native.require_native(MONITOR))
        status = run_in_terminal([program, *wish.rest, "--json", str(recording)])
        if recording.is_file() and recording.stat().st_size:
            _write(wish, recording, "this host")
    return status


def _make_from_recording(wish: PageWish, source: Path) -> int:
    if wish.rest:
        raise UsageError(f"{wish.rest[0]} has no meaning with --from", "nothing is watched then")
    if wish.html is None and wish.parquet is None:
        raise UsageError("--from without --html or --parquet", hint="say what to make of it")
    _write(wish, source, source.name)
    return Exit.OK


def _require_folder(target: Path) -> None:
    """Known before a night is watched, not after it."""
    folder = target.absolute().parent
    taken = target.exists() and not target.is_file()
    if taken or not os.access(folder, os.W_OK):
        why = "it is no file" if taken else f"{folder} is no folder one may write to"
        raise HostError(f"cannot write {target}", why, "name another file")


def _write(wish: PageWish, source: Path, title: str) -> None:
    from diskproof.report.monitor.samples import read_recording

    recording = read_recording(source)
    if wish.html is not None:
        from diskproof.report.monitor.page import render_monitor_page

        page = render_monitor_page(recording, f"What the monitor saw: {title}").encode()
        _keep(wish.html, page)
    if wish.parquet is not None:
        from diskproof.report.monitor.table import render_parquet

        _keep(wish.parquet, render_parquet(recording))


def _keep(target: Path, content: bytes) -> None:
    from diskproof.cli.terminal import note
    from diskproof.store.export import start_whole_file
    from diskproof.units import render_bytes

    with start_whole_file(target) as stream:
        stream.write(content)
    note(f"{target}: {render_bytes(len(content))}")
