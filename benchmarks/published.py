"""What LazyFS published of applications, looked for in the versions that this host can have.

    PYTHONPATH=src python benchmarks/published.py [--only NAME...] [--budget TIME]

Prints for each case what a power cut leaves, by the strictest rules and by those of ext4, with its
causes; docs/crash-published.md has the table. Cases are programs of Debian (python3-plyvel,
redis-server, postgresql), with our recipes or with what lies in benchmarks/published, and bbolt,
which Go builds. One whose program is not here is left out, with the reason. Requires root and
/dev/fuse.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published"
DEBIAN_PYTHON = "/usr/bin/python3"
BBOLT = ("v1.3.6", "v1.4.3")
"""That of etcd 3.4.25, and a later one."""


@dataclass(frozen=True)
class Case:
    """``published`` is LazyFS's number of the case; a recipe's name, or commands of ``FOLDER``."""

    published: str
    needs: Sequence[str]
    app: str = ""
    prepare: Sequence[str] = ()
    writer: Sequence[str] = ()
    check: Sequence[str] = ()
    module: str = ""
    """A version of bbolt, with which the program is built."""


def script(*words: str) -> tuple[str, ...]:
    return DEBIAN_PYTHON, f"{FOLDER}/{words[0]}", *words[1:]


def bbolt(version: str) -> Case:
    return Case("16, 17, 18", ["go"], writer=("write",), check=("check",), module=version)


CASES = {
    "leveldb": Case("3", [DEBIAN_PYTHON], "leveldb"),
    "leveldb-sync-last": Case(
        "4, 5",
        [DEBIAN_PYTHON],
        prepare=script("leveldb/put.py", "prepare"),
        writer=script("leveldb/put.py"),
        check=script("leveldb/check.py"),
    ),
    "redis-acl": Case(
        "11",
        ["redis-server", "redis-cli"],
        prepare=("touch", "users.acl"),
        writer=script("redis-acl/users.py", "write"),
        check=script("redis-acl/users.py", "check"),
    ),
    "redis-everysec": Case("Redis, append-only file", ["redis-server"], "redis-everysec"),
    "postgres-no-full-pages": Case("PostgreSQL", ["psql"], "postgres-no-full-pages"),
    **{f"bbolt-{version}": bbolt(version) for version in BBOLT},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--budget", default="1min")
    parser.add_argument("more", nargs="*", help="behind --: further options of crash")
    given = parser.parse_args()
    for name in given.only:
        case = CASES[name]
        if missing := [each for each in case.needs if shutil.which(each) is None]:
            print(f"{name}: left out, without {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory() as room:
            words = ("--budget", given.budget, *given.more)
            print("\n".join(told(name, run(case, Path(room), words))), flush=True)
    return 0


def run(case: Case, room: Path, more: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The verdicts by fault."""
    asked = ["--app", case.app] if case.app else commands(case, room)
    argv = [sys.executable, "-m", "diskproof", "crash", *asked, "--profiles", "ext4", *more]
    argv += ["--json", "--quiet", "--wait", "--store", f"{room}/store.sqlite"]
    source = {**os.environ, "PYTHONPATH": str(Path("src").resolve())}
    done = subprocess.run(argv, cwd=room, env=source, stdout=subprocess.PIPE)
    if done.returncode > 1:
        raise SystemExit(f"diskproof ended with status {done.returncode}")
    return {row["fault"]: row for row in json.loads(done.stdout)}


def commands(case: Case, room: Path) -> Sequence[str]:
    """The options that say what writes and what judges, and the folder, prepared."""
    (room / "data").mkdir()
    if case.prepare:
        subprocess.run(case.prepare, cwd=room / "data", check=True)
    program = (build(case.module, room),) if case.module else ()
    writer, check = (shlex.join((*program, *words)) for words in (case.writer, case.check))
    return "--writer", writer, "--check", check, f"{room}/data"


def build(version: str, room: Path) -> str:
    """The program with this version of bbolt."""
    source = shutil.copytree(FOLDER / "bbolt", room / "bbolt")
    for words in (("get", f"go.etcd.io/bbolt@{version}"), ("build", "-o", f"{room}/bolt", ".")):
        subprocess.run(("go", *words), cwd=source, check=True)
    return f"{room}/bolt"


def told(name: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for fault in ("power", "power-ext4"):
        row = rows[fault]
        word = "kept so far" if row["kept_so_far"] else row["verdict"]
        of = f"{row['states_checked']:,} of {row['states_total']} states"
        reason = row["reason"].partition("\n")[0]
        yield f"{name} ({CASES[name].published}), {fault}: {word}, {of} {reason}".rstrip()
    for cause in (rows["power"]["causes"] or {"found": []})["found"]:
        yield f"    {cause['verdict']}: {cause['text']}. {cause['cure']}"


if __name__ == "__main__":
    sys.exit(main())
