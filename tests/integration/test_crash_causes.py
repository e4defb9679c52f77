"""Causes of a program's losses, from the command line to the page and to a folder to send.

Requires root, /dev/fuse and the native programs.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from diskproof.cli import run_command_line
from support.planted_causes import plant, score
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]
KINDS = ("data", "copies", "mkdir")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A program with three causes, and the verdict on power."""
    folder = tmp_path_factory.mktemp("causes")
    jobs = plant(folder, KINDS, 1)
    writer = f"python3 -S -E {folder}/writer.py {' '.join(jobs)}"
    check = f"python3 -S -E {folder}/check.py"
    argv = [sys.executable, "-m", "diskproof", "crash", "--writer", writer, "--check", check]
    argv += ["--budget", "12s", "--causes", "4min", "--json", "--quiet", "data"]
    with (folder / "said.json").open("w") as said:
        subprocess.run(argv, stdout=said, check=False, cwd=folder)
    rows = json.loads((folder / "said.json").read_text())
    return folder, next(row for row in rows if row["fault"] == "power")


def test_every_planted_cause_is_named_once_with_a_cure_that_works(
    crashed: tuple[Path, dict[str, Any]],
) -> None:
    found = score(crashed[1]["causes"], KINDS, 1)
    assert (found.planted, found.named, found.extra) == (3, 3, 0), found.texts
    assert found.proposed == found.cured == 3
    assert (found.needless, found.found_needless, found.wrong) == (3, 3, 0)
    texts = {cause["text"] for cause in crashed[1]["causes"]["found"]}
    assert "mkdir charlie/below is missing" in texts
    told = "rename alpha/new -> alpha/file is there, 200 bytes of alpha/new at 0 are not"
    assert told in texts


def test_a_cause_is_sent_as_a_folder_that_needs_nothing_of_ours(
    crashed: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, row = crashed
    monkeypatch.chdir(folder)
    mkdir = next(c for c in row["causes"]["found"] if c["text"] == "mkdir charlie/below is missing")
    words = [*row["reproduce"].split()[1:], "--cause", str(mkdir["number"]), "--to", "parcel"]
    assert run_command_line(words) == 1
    assert "mkdir charlie/below is missing" in capsys.readouterr().out
    checked = subprocess.run(["parcel/check.sh"], capture_output=True, text=True, check=False)
    assert checked.returncode == 1 and "'charlie'" in checked.stdout
    assert sorted(path.name for path in Path("parcel/state/charlie").iterdir()) == ["old"]
    story = Path("parcel/story.txt").read_text().splitlines()
    assert len(story) <= 20 and story[-1].strip() == "crash: the host loses power"
    # Who did it, and where, stand between where the interpreter has debug symbols.
    assert any(re.search("mkdir charlie/below(, by .*)?  <- missing$", line) for line in story)
    (case,) = ElementTree.parse("parcel/junit.xml").getroot()
    assert case.get("name") == "power: mkdir charlie/below is missing"
    assert run_command_line([*words[:-2], "--to", "parcel"]) == 2
    assert run_command_line([*words[:-3], "99", "--to", "other"]) == 2
    assert "has no cause 99" in " ".join(capsys.readouterr().err.split())


def test_causes_stand_on_the_page(
    crashed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(crashed[0])
    assert run_command_line(["report", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "mkdir charlie/below is missing" in page
    assert "fsync of charlie after mkdir charlie/below" in page
    assert "flushes can go" in page


THREADS = """
import json, os, sys, threading

truth = open(sys.argv[1], "a")

def write(name):
    thread = threading.get_native_id()
    with open(f"/proc/self/task/{thread}/comm", "w") as comm:
        comm.write(name)
    with open("shared/" + name, "r+b", 0) as file:
        file.write(name.encode() * 40)
        if name != "child-2":
            os.fsync(file.fileno())
    truth.write(json.dumps([name, os.getpid(), thread]) + chr(10))

def work(who):
    threads = [threading.Thread(target=write, args=(f"{who}-{number}",)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    truth.flush()

child = os.fork()
work("child" if child == 0 else "parent")
if child:
    os.waitpid(child, 0)
    print("written", flush=True)
"""
WHOLE = """
import os, sys

promised = open(os.environ["DISKPROOF_ACKNOWLEDGED"]).read()
names = [f"{who}-{number}" for who in ("child", "parent") for number in (1, 2)]
sys.exit(bool(promised) and any(os.path.getsize("shared/" + name) == 0 for name in names))
"""


def test_of_two_processes_with_two_threads_the_one_that_did_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data/shared").mkdir(parents=True)
    for name in ("child-1", "child-2", "parent-1", "parent-2"):
        Path("data/shared", name).touch()
    Path("writer.py").write_text(THREADS)
    Path("check.py").write_text(WHOLE)
    python = f"{sys.executable} -S -E {tmp_path}"
    words = ["crash", "--writer", f"{python}/writer.py {tmp_path}/truth"]
    words += ["--check", f"{python}/check.py", "--budget", "20s", "--causes", "2min"]
    assert run_command_line([*words, "--json", "--quiet", "data"]) == 1
    rows = json.loads(capsys.readouterr().out)
    row = next(each for each in rows if each["fault"] == "power")
    (cause,) = row["causes"]["found"]
    lines = map(json.loads, Path("truth").read_text().splitlines())
    truth = {name: {"process": process, "thread": thread} for name, process, thread in lines}
    (change,) = cause["operations"]
    assert change["path"] == "shared/child-2"
    assert change["by"].items() >= {**truth["child-2"], "name": "child-2"}.items()
    again = [*row["reproduce"].split()[1:], "--cause", "1", "--to", "parcel"]
    assert run_command_line(again) == 1
    story = Path("parcel/story.txt").read_text()
    for name, by in truth.items():
        assert f"by {name} ({by['process']}, thread {by['thread']})" in story


FORGETS = """#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    int one = open("item-1", O_WRONLY), two = open("item-2", O_WRONLY);
    if (write(one, "first", 5) != 5) return 1;
    if (write(two, "second", 6) != 6) return 1;
    puts("written");
    return 0;
}
"""
KNOWS = """
promised=$(cat "$DISKPROOF_ACKNOWLEDGED")
[ -z "$promised" ] || [ "$(cat item-1) $(cat item-2)" = "first second" ]
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_two_lines_that_forget_a_flush_are_two_causes_with_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files differ in a number only: by operation and path they would be one cause."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in ("item-1", "item-2"):
        Path("data", name).touch()
    Path("forgets.c").write_text(FORGETS)
    Path("check.sh").write_text(KNOWS)
    subprocess.run(["gcc", "-g", "-o", "forgets", "forgets.c"], check=True)
    words = ["crash", "--writer", f"{tmp_path}/forgets", "--check", f"sh {tmp_path}/check.sh"]
    words += ["--budget", "20s", "--causes", "2min", "--quiet", "data"]
    assert run_command_line([*words, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    row = next(each for each in rows if each["fault"] == "power")
    causes = sorted(row["causes"]["found"], key=lambda cause: str(cause["text"]))
    assert [cause["text"] for cause in causes] == [
        "5 bytes of item-1 at 0 are missing",
        "6 bytes of item-2 at 0 are missing",
    ]
    for cause, line in zip(causes, (7, 8), strict=True):
        place = cause["operations"][0]["by"]["place"]
        assert (place["function"], place["line"]) == ("main", line)
        assert Path(place["file"]) == tmp_path / "forgets.c"
        assert cause["alike"] == 1 and cause["cures"]
    again = [*row["reproduce"].split()[1:], "--cause", "1", "--to", "parcel"]
    assert run_command_line(again) == 1
    story = Path("parcel/story.txt").read_text()
    assert "at forgets.c:7 (main)" in story and "at forgets.c:8 (main)" in story
