"""What crashes leave of well-known programs: runs the gallery, writes docs/applications.md.

    PYTHONPATH=src python benchmarks/applications.py --kept FILE [--only NAME...] [--budget TIME]
        [--to FILE]

As root: each program of ``diskproof crash apps`` that is installed here, under the rules of POSIX
and of file systems, and on the file systems of this kernel. FILE has a line for each run, added
when it ends; what is there is not run again, and the page is of all that is there.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from diskproof.crash.gallery import ApplicationJson, gallery_json
from diskproof.crash.real_fs import SECTOR
from diskproof.records.verdicts import PROFILES
from diskproof.study.crash import FILE_SYSTEM_BYTES
from diskproof.units import parse_seconds

REAL = tuple(FILE_SYSTEM_BYTES)
RULES = {"POSIX": "power", **{f"{name}'s rules": PROFILES[name] for name in REAL}}
PAGE = Path(__file__).parents[1] / "docs" / "applications.md"
HEAD = (
    "# Well-known programs after a crash\n\n"
    "Written by `benchmarks/applications.py` on {date}, Linux {kernel}, {budget} for each program "
    "and place; do not edit. Each program comes from Debian and ran as its recipe says (`diskproof "
    "crash apps`; `diskproof crash --app NAME --on ext4` makes a row again): a few promises, a "
    "power cut at any moment, every state that the rules allow checked.\n"
    "*POSIX* are the strictest rules, under which names, sizes and data that no flush asked for "
    "may be missing in any combination: what is said there can happen on some file system, and "
    "need not on yours. *ext4's rules* judge the same recording by what ext4 promises beyond that "
    "(`--profiles`). *ext4*, *xfs*, *btrfs* are those of this kernel with their usual options "
    "(`--on`), which commit and write back while the program runs. A disk writes 4 KiB whole "
    "everywhere here (`--sector 4096`). How many states were checked of how many stands beside "
    "each word; of *kept so far* not all that decides was checked in the time.\n\n"
)
BADNESS = {"keeps": 0, "undecided": 1, "loses": 2, "corrupts": 3}
NAMED = 6
"""Causes of one program that are written out."""


def run_all(names: Sequence[str], budget: str, kept: Path) -> None:
    """What of it is not kept yet."""
    seconds = parse_seconds(budget)
    for name in names:
        # One recording, judged by all rules.
        how = ["--sector", str(SECTOR), "--causes", budget, "--profiles", ",".join(REAL)]
        run_and_keep(kept, name, RULES, [*how, "--budget", f"{3 * seconds:g}s"])
    for name in names:
        for place in REAL:
            how = ["--on", place, "--budget", f"{2 * seconds:g}s"]
            run_and_keep(kept, name, {place: "power"}, how)


def run_and_keep(kept: Path, name: str, places: Mapping[str, str], how: Sequence[str]) -> None:
    """``places`` with their faults."""
    if set(places) <= {place for one, place in read_kept(kept) if one == name}:
        return
    by_fault = run_one(name, *how)
    with kept.open("a") as stream:
        for place, fault in places.items():
            row = by_fault[fault]
            stream.write(json.dumps({"name": name, "place": place, "row": row}) + "\n")
            print(f"{name:20} {place:14} {told(row)}", flush=True)


def read_kept(kept: Path) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The verdict for a power cut by program and rules or real file system."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    return {(line["name"], line["place"]): line["row"] for line in map(json.loads, lines)}


def run_one(name: str, *more: str) -> Mapping[str, Mapping[str, Any]]:
    """The verdicts by fault."""
    with tempfile.TemporaryDirectory() as room:
        argv = [sys.executable, "-m", "diskproof", "crash", "--app", name, "--json", "--quiet"]
        argv += ["--wait", "--store", f"{room}/store.sqlite", *more]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=room)
        if done.returncode > 1:
            reason = done.stderr.strip().splitlines()[0]
            failed = {"verdict": "undecided", "kept_so_far": False, "reason": reason}
            return dict.fromkeys(RULES.values(), failed)
        # On a real file system alone, and while that is busy by itself: the worse counts.
        rows = sorted(
            json.loads(done.stdout), key=lambda row: (BADNESS[row["verdict"]], row["lost"])
        )
        return {row["fault"]: row for row in rows}


def told(row: Mapping[str, Any]) -> str:
    """A verdict in a field of the table."""
    word = row["verdict"]
    if word == "undecided" and not row["kept_so_far"]:
        return f"undecided: {row['reason']}"
    if row["kept_so_far"]:
        word = "kept so far"
    elif row["verdict"] == "loses":
        word = f"**loses {row['lost']}**"
    elif row["verdict"] == "corrupts":
        word = "**corrupts**"
    total = row["states_total"]
    about = "about " if row["states_estimated"] else ""
    of = "?" if total is None else f"{about}{total:,}"
    return f"{word} ({row['states_checked']:,} of {of})"


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether two say the same of what is kept, lost or corrupt; None: one says nothing."""
    words = ["keeps" if each["kept_so_far"] else each["verdict"] for each in (one, other)]
    return None if "undecided" in words else words[0] == words[1]


def agreement(names: Sequence[str], found: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """How often a file system's rules say what the real one does, and where not."""
    pairs = [(name, place) for name in names for place in REAL]
    said = {
        pair: agree(found[pair], found[pair[0], f"{pair[1]}'s rules"])
        for pair in pairs
        if agree(found[pair], found[pair[0], f"{pair[1]}'s rules"]) is not None
    }
    apart = ", ".join(f"{name} on {place}" for (name, place), same in said.items() if not same)
    told = f"Rules and the real file system say the same of {sum(map(bool, said.values()))} of "
    return f"\n{told}{len(said)} pairs{'; not of ' + apart if apart else ''}.\n"


def page(
    apps: Sequence[ApplicationJson], found: Mapping[tuple[str, str], Mapping[str, Any]], budget: str
) -> Iterator[str]:
    date = datetime.now(UTC).date().isoformat()
    yield HEAD.format(date=date, kernel=platform.release(), budget=budget)
    places = ("POSIX", *(each for name in REAL for each in (f"{name}'s rules", name)))
    yield f"| name | program | {' | '.join(places)} |\n|---|---|{'---|' * len(places)}\n"
    for app in apps:
        cells = " | ".join(told(found[app["name"], place]) for place in places)
        yield f"| `{app['name']}` | {app['title']}, {app['version']} | {cells} |\n"
    yield agreement([app["name"] for app in apps], found)
    for app in apps:
        yield from entry(app, found[app["name"], "POSIX"])


def entry(app: ApplicationJson, row: Mapping[str, Any]) -> Iterator[str]:
    """What is promised, and the causes of what POSIX allows to be lost."""
    yield f"\n## {app['name']}\n{app['title']}. A promise is {app['promise']}; {app['source']}.\n"
    causes = row.get("causes") or {"found": [], "flushes": None}
    for each in causes["found"][:NAMED]:
        cure = f" Cure: {each['cure']}." if each["cure"] else ""
        yield f"- {each['verdict']}: {each['text']}.{cure}\n"
    if (left := len(causes["found"]) - NAMED) > 0:
        yield f"- and {left} more\n"
    if (flushes := causes["flushes"]) and flushes["needless"]:
        yield f"\n{flushes['needless']} of {flushes['count']} flushes no promise needs.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--to", type=Path, default=PAGE)
    given = parser.parse_args()
    apps = [app for app in gallery_json() if app["version"]]
    asked = [app["name"] for app in apps if not given.only or app["name"] in given.only]
    run_all(asked, given.budget, given.kept)
    found = read_kept(given.kept)
    whole = [app for app in apps if all((app["name"], each) in found for each in (*RULES, *REAL))]
    given.to.write_text("".join(page(whole, found, given.budget)))


if __name__ == "__main__":
    main()
