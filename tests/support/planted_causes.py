"""Programs with planted causes of loss, with needless flushes and with needed ones, and how many of
them ``diskproof crash`` names. Every cause has a directory of its own and no flush of another's."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "julia")
KINDS = {
    "data": [("write", "{}/new")],
    "rename": [("rename", "{}/new")],
    "mkdir": [("mkdir", "{}/below")],
    "create": [("create", "{}/made")],
    "append": [("write", "{}/old")],
    "link": [("link", "{}/old")],
    "unlink": [("unlink", "{}/old")],
    "truncate": [("truncate", "{}/old")],
    "mode": [("setattr", "{}/old")],
    "overwrite": [("write", "{}/old")],
    "copies": [("write", "{}/one"), ("write", "{}/two")],
}
"""What each kind forgets: the operations that are not durable when it is promised, which must all
be missing for a loss, and their paths."""

WRITER = """
import os, sys
def flush(path, call=os.fsync):
    file = os.open(path, os.O_RDONLY)
    call(file)
    os.close(file)
def put(path, text, mode="w", durable=True):
    with open(path, mode) as stream:
        stream.write(text)
    if durable:
        flush(path)
def data(d):
    put(f"{d}/new", d * 40, durable=False)
    os.rename(f"{d}/new", f"{d}/file")
    flush(d)
def rename(d):
    put(f"{d}/new", d * 40)
    os.rename(f"{d}/new", f"{d}/file")
def mkdir(d):
    os.mkdir(f"{d}/below")
    put(f"{d}/below/file", d)
    flush(f"{d}/below")
def create(d):
    put(f"{d}/made", d)
def append(d):
    put(f"{d}/old", d, "a", durable=False)
def overwrite(d):
    put(f"{d}/old", d.upper(), "r+", durable=False)
def copies(d):
    put(f"{d}/one", d, durable=False)
    put(f"{d}/two", d, durable=False)
    flush(d)
def link(d):
    os.link(f"{d}/old", f"{d}/more")
def unlink(d):
    os.unlink(f"{d}/old")
def truncate(d):
    os.truncate(f"{d}/old", 0)
def mode(d):
    os.chmod(f"{d}/old", 0o600)
    flush(f"{d}/old", os.fdatasync)
def good(d):
    put(f"{d}/new", d * 40)
    os.rename(f"{d}/new", f"{d}/file")
    flush(d)
def needless(d):
    put(f"{d}/scratch", d)
    flush(f"{d}/old")
    flush(d, os.fdatasync)
for job in sys.argv[1:]:
    kind, place = job.split("=")
    globals()[kind](place)
    if kind != "needless":
        print(job, flush=True)
"""
CHECK = """
import os, sys
def read(path):
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return None
def is_kept(kind, d):
    old = read(f"{d}/old")
    if kind in ("data", "rename", "good"):
        return read(f"{d}/file") == d * 40
    if kind == "mkdir":
        return read(f"{d}/below/file") == d
    return {
        "create": read(f"{d}/made") == d,
        "append": old == f"old of {d}{d}",
        "overwrite": (old or "").startswith(d.upper()),
        "copies": d in (read(f"{d}/one"), read(f"{d}/two")),
        "link": read(f"{d}/more") == f"old of {d}",
        "unlink": old is None,
        "truncate": old == "",
        "mode": old is not None and os.stat(f"{d}/old").st_mode & 0o777 == 0o600,
    }[kind]
jobs = [line.strip().split("=") for line in open(os.environ["DISKPROOF_ACKNOWLEDGED"])]
lost = [job for job in jobs if len(job) == 2 and not is_kept(*job)]
print(len(lost), lost)
sys.exit(1 if lost else 0)
"""


@dataclass(frozen=True)
class Score:
    """``extra`` causes were not planted, or named twice; ``wrong`` flushes were called needless and
    are needed."""

    planted: int
    named: int
    extra: int
    proposed: int
    cured: int
    needless: int
    found_needless: int
    wrong: int
    texts: tuple[str, ...]

    @property
    def shares(self) -> tuple[float, float, float]:
        """Causes named, cures that work, needless flushes found."""
        return (
            self.named / max(1, self.planted),
            self.cured / max(1, self.proposed),
            self.found_needless / max(1, self.needless),
        )


def plant(folder: Path, kinds: Sequence[str], needless: int) -> list[str]:
    """The program in ``folder``; its jobs, between which stand one that is right and ``needless``
    ones of three flushes each."""
    data = folder / "data"
    jobs = [f"{kind}={word}" for kind, word in zip(kinds, WORDS, strict=False)]
    jobs += ["good=right", *(f"needless=spare{'x' * number}" for number in range(needless))]
    for job in jobs:
        place = data / job.partition("=")[2]
        place.mkdir(parents=True)
        (place / "old").write_text(f"old of {place.name}")
        (place / "old").chmod(0o644)
    (folder / "writer.py").write_text(WRITER)
    (folder / "check.py").write_text(CHECK)
    return jobs


def judge(folder: Path, kinds: Sequence[str], needless: int, seconds: float) -> Score:
    """Plants, has ``diskproof crash`` look for ``seconds``, and counts what it named."""
    jobs = plant(folder, kinds, needless)
    writer = f"{sys.executable} -S -E {folder}/writer.py {' '.join(jobs)}"
    argv = [sys.executable, "-m", "diskproof", "crash", "--writer", writer]
    argv += ["--check", f"{sys.executable} -S -E {folder}/check.py", "--budget", "12s", "--wait"]
    argv += ["--causes", f"{seconds:g}s", "--json", "--quiet", str(folder / "data")]
    argv += ["--store", str(folder / "store.sqlite")]
    answer = subprocess.run(argv, stdout=subprocess.PIPE, check=False, cwd=folder)
    (row,) = (row for row in json.loads(answer.stdout) if row["fault"] == "power")
    return score(row["causes"], kinds, needless)


def score(causes: dict[str, Any], kinds: Sequence[str], needless: int) -> Score:
    wanted = {
        tuple((operation, path.format(word)) for operation, path in KINDS[kind])
        for kind, word in zip(kinds, WORDS, strict=False)
    }
    found = Counter(
        tuple((each["operation"], each["path"]) for each in cause["operations"])
        for cause in causes["found"]
    )
    named = sum(1 for each in wanted if found[each])
    proposed = [cause for cause in causes["found"] if cause["cure"]]
    spare = [each for each in causes["flushes_by_path"] if each["path"].startswith("spare")]
    other = [each for each in causes["flushes_by_path"] if not each["path"].startswith("spare")]
    return Score(
        planted=len(wanted),
        named=named,
        extra=found.total() - named,
        proposed=len(proposed),
        cured=sum(1 for cause in proposed if cause["cures"]),
        needless=3 * needless,
        found_needless=sum(each["needless"] for each in spare),
        # The fdatasync that forgets the mode covers nothing: it is needless, too.
        wrong=sum(e["needless"] for e in other if e["operation"] != "fdatasync"),
        texts=tuple(f"{cause['text']} [{cause['cure']}]" for cause in causes["found"]),
    )
