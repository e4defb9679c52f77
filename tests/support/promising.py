"""Small programs that promise, each with its check: what a crash leaves of them is looked for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.crash.program import run_writer
from diskproof.recording.folder import start_recording
from support.recording import DEADLINE

_SQLITE = """
import sqlite3, sys
database = sqlite3.connect("rows.db", isolation_level=None)
database.execute("PRAGMA journal_mode={journal}")
database.execute("PRAGMA synchronous={synchronous}")
database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
for number in range({rows}):
    database.execute("INSERT INTO rows VALUES (?, ?)", (number, str(number) * 300))
    print(number, flush=True)
"""
_JUDGE_ROWS = """
import sqlite3
def judge(folder, promises):
    wanted = {int(line) for line in open(promises)}
    database = sqlite3.connect(folder + "/rows.db", isolation_level=None)
    try:
        (said,) = database.execute("PRAGMA integrity_check").fetchone()
        found = {row[0] for row in database.execute("SELECT number FROM rows")}
    except sqlite3.DatabaseError as error:
        return (1, len(wanted)) if "no such table" in str(error) else (2, 0, str(error))
    finally:
        database.close()
    if said != "ok":
        return 2, 0, said.split("\\n")[0]
    lost = len(wanted - found)
    return (1, lost) if lost else (0, "")
"""
_ONCE = """
import os, sys
code, *words = judge(".", os.environ["DISKPROOF_ACKNOWLEDGED"])
print(*words)
sys.exit(code)
"""
_STAYS = """
import sys
for line in sys.stdin:
    print(*judge(*line.rstrip("\\n").split("\\t")), flush=True)
"""
_GIT = """
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent
git init -q .
git config gc.auto 0
git config core.fsync {fsync}
for number in $(seq {commits}); do
    echo $number > file$number
    git add file$number
    git commit -q -m $number
    git rev-parse HEAD
done
"""
_JUDGE_GIT = """
export GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent
history=$(git rev-list HEAD 2> /dev/null)
lost=0
while read -r commit; do
    case $history in
        *$commit*) ;;
        *) lost=$((lost + 1)) ;;
    esac
done < "$DISKPROOF_ACKNOWLEDGED"
[ $lost -gt 0 ] && echo $lost && exit 1
set --
[ -e .git/objects/info/commit-graph ] || [ -e .git/objects/pack/multi-pack-index ] ||
    set -- -c core.commitGraph=false -c core.multiPackIndex=false
git "$@" fsck --strict > /dev/null 2>&1 || exit 2
"""
_LINES = """
import os
file = os.open("lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
{folder}
for number in range({lines}):
    os.write(file, b"%d\\n" % number * 500)
    {flush}
    print(number, flush=True)
"""
_JUDGE_LINES = """
def judge(folder, promises):
    wanted = {line.strip() for line in open(promises)}
    try:
        found = {line.strip() for line in open(folder + "/lines", errors="replace")}
    except FileNotFoundError:
        found = set()
    lost = len(wanted - found)
    return (1, lost) if lost else (0, "")
"""
_FILES = """
import os
for number in range({files}):
    with open("new", "w") as file:
        file.write("%d\\n" % number * 3000)
        file.flush()
        {flush}
    os.rename("new", "now")
    {folder}
    print(number, flush=True)
"""
_JUDGE_FILES = """
def judge(folder, promises):
    wanted = [int(line) for line in open(promises)]
    try:
        lines = open(folder + "/now", errors="replace").read().split("\\n")
    except FileNotFoundError:
        return (1, len(wanted)) if wanted else (0, "")
    if len(set(lines[:-1])) != 1 or not lines[0].isdigit() or len(lines) != 3001:
        return 2, 0, "it is not whole"
    lost = len([number for number in wanted if number > int(lines[0])])
    return (1, lost) if lost else (0, "")
"""
_ROCKS = """
import sys
sys.path.insert(0, {path!r})
from rocksdict import Rdict, WriteOptions
database, options = Rdict("rocks"), WriteOptions()
options.sync = True
for number in range({keys}):
    database.put(number, str(number) * 100, write_opt=options)
    print(number, flush=True)
"""
_JUDGE_ROCKS = """
import os, sys
sys.path.insert(0, {path!r})
from rocksdict import Rdict
def judge(folder, promises):
    wanted = [int(line) for line in open(promises)]
    if not os.path.exists(folder + "/rocks"):
        return (1, len(wanted)) if wanted else (0, "")
    try:
        database = Rdict(folder + "/rocks")
        lost = len([number for number in wanted if database.get(number) is None])
        database.close()
    except Exception as error:
        return 2, 0, str(error)[:100].replace("\\n", " ")
    return (1, lost) if lost else (0, "")
"""
_FSYNC = "os.fsync(file if isinstance(file, int) else file.fileno())"
_FOLDER = 'folder = os.open(".", os.O_RDONLY); os.fsync(folder); os.close(folder)'


@dataclass(frozen=True)
class Promising:
    """A program and its check, as argv; ``staying`` is the check that stays."""

    name: str
    writer: tuple[str, ...]
    check: tuple[str, ...]
    staying: tuple[str, ...] = ()

    def request(self, *, stays: bool = False, share_reads: bool = True) -> dict[str, object]:
        """The check as the explorer is asked for it."""
        argv = list(self.staying if stays else self.check)
        return {"kind": "command", "argv": argv, "stays": stays, "share_reads": share_reads}


def _python(name: str, writer: str, judge: str) -> Promising:
    argv = (sys.executable, "-c")
    return Promising(name, (*argv, writer), (*argv, judge + _ONCE), (*argv, judge + _STAYS))


def sqlite(journal: str, synchronous: str, rows: int) -> Promising:
    """Commits of one row each."""
    writer = _SQLITE.format(journal=journal, synchronous=synchronous, rows=rows)
    return _python(f"sqlite {journal} {synchronous} {rows}", writer, _JUDGE_ROWS)


def git(fsync: str, commits: int) -> Promising:
    """Commits of one new file each; ``fsync`` is git's setting of what it flushes."""
    writer = _GIT.format(fsync=fsync, commits=commits)
    return Promising(f"git {fsync} {commits}", ("sh", "-c", writer), ("sh", "-c", _JUDGE_GIT))


def lines(lines: int, *, flush: bool) -> Promising:
    """A log to which lines are appended."""
    words = (_FSYNC, _FOLDER) if flush else ("", "")
    writer = _LINES.format(lines=lines, flush=words[0], folder=words[1])
    return _python(f"lines {lines} {'flushed' if flush else 'bare'}", writer, _JUDGE_LINES)


def files(files: int, *, flush: bool, folder: bool) -> Promising:
    """A file that is replaced by renaming a new one."""
    words = {"flush": _FSYNC if flush else "", "folder": _FOLDER if folder else ""}
    how = " ".join(name for name, word in words.items() if word) or "bare"
    return _python(f"rename {files} {how}", _FILES.format(files=files, **words), _JUDGE_FILES)


def rocksdb(path: str, keys: int) -> Promising:
    """Synced puts, by the package rocksdict in the folder ``path``."""
    writer = _ROCKS.format(path=path, keys=keys)
    return _python(f"rocksdb {keys}", writer, _JUDGE_ROCKS.format(path=path))


@contextmanager
def start_promised(program: Promising, room: Path) -> Iterator[dict[str, object]]:
    """Record a program in a new folder; gives ``log`` and ``base`` of a request."""
    for name in ("backing", "base", "room"):
        (room / name).mkdir(parents=True)
    with start_recording(room / "backing", room / "room") as recording:
        run_writer(program.writer, recording, recording.folder, room / "room", 10 * DEADLINE)
        log = recording.log
    yield {"log": str(log), "base": str(room / "base")}
