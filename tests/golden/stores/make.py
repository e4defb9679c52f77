"""Makes the golden stores anew, with diskproof of each age: ``make.py``. README.md says why.

The checkout must have the history; PostgreSQL must be installed. Each version's own code fills its
stores; the newest of them reads all three and so says what every later diskproof must read.
"""

import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))
from support.databases import USER, find_programs, make_cluster, start_server  # noqa: E402

COMMITS = {1: "9f29436^", 2: "ad28075^", 3: "54c301e"}
"""The last commit that wrote each version; of 3, the one that the run kinds were parts after."""


@contextmanager
def check_out(commit: str) -> Iterator[Path]:
    """The tree of a commit, for the length of a ``with`` block."""
    with tempfile.TemporaryDirectory() as parent:
        tree = Path(parent) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*args: str) -> None:
    subprocess.run(["git", "-C", str(FOLDER), *args], check=True)


def python(tree: Path, script: str, place: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    argv = [sys.executable, str(FOLDER / script), place]
    return subprocess.run(
        argv, env=environment, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def dump(folder: Path, database: str) -> str:
    """A database as statements that any client can execute."""
    programs = find_programs()
    assert programs is not None
    options = ["--inserts", "--no-owner", "--no-privileges", "--schema=diskproof"]
    argv = [str(programs / "pg_dump"), *options, "-h", str(folder), "-U", USER, database]
    text = subprocess.run(argv, check=True, text=True, stdout=subprocess.PIPE).stdout
    kept = (line for line in text.splitlines() if line and not line.startswith(("--", "\\")))
    return "\n".join(kept) + "\n"


def keep(name: str, content: bytes) -> None:
    (FOLDER / name).write_bytes(gzip.compress(content, mtime=0))


def main() -> None:
    with make_cluster() as folder, start_server(folder, "fsync=off") as server:
        with tempfile.TemporaryDirectory() as parent, check_out(COMMITS[3]) as newest:
            for version, commit in COMMITS.items():
                place = Path(parent) / f"{version}.sqlite"
                url = server.new_database()
                with check_out(commit) as tree:
                    python(tree, "fill.py", str(place))
                    python(tree, "fill.py", url)
                keep(f"{version}.sqlite.gz", place.read_bytes())
                database = url.partition("?")[0].rpartition("/")[2]
                keep(f"{version}.sql.gz", dump(folder, database).encode())
                answers = python(newest, "answers.py", str(place))
                assert python(newest, "answers.py", url) == answers, "the databases do not agree"
                (FOLDER / f"{version}.json").write_text(answers)


if __name__ == "__main__":
    main()
