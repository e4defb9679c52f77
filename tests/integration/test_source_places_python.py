"""Which line of a script changed a recorded folder: every Python that is here.

Requires root, /dev/fuse and the native programs.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.recording import needs_fuse
from support.source_places import compile_program, line_of, of_operation, place_of, record

pytestmark = needs_fuse
KNOWN = ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
SCRIPT = """#!{python} -B
import os
import pathlib
import shutil
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import h\u00e9lper


class Store:
    def save(self, name):
        with open(name, "wb", buffering=0) as file:  # CREATE
            file.write(
                b"text"
            )


def work():
    os.mkdir("made")  # THREAD


def pieces():
    os.mkdir("generated")  # GENERATOR
    yield 1


def nested():
    os.rename(
        "saved",
        "kept",
    )


Store().save("saved")
thread = threading.Thread(target=work)
thread.start()
thread.join()
for _ in pieces():
    pass
pathlib.Path("written").write_text("text")  # PATHLIB
shutil.copyfile("written", "copied")  # SHUTIL
h\u00e9lper.remove("written")
(lambda: os.mkdir("by-lambda"))()  # LAMBDA
child = os.fork()
if child == 0:
    os.mkdir("forked")  # FORK
    os._exit(0)
os.waitpid(child, 0)
nested()
"""
HELPER = """import os


def remove(name: str) -> None:
    \"\"\"Two lines between.\"\"\"

    os.unlink(name)  # REMOVE
"""


# What says that it is Python 3.11, with lists that never end, lengths that nothing has, and a name
# in a file of the recorded folder, whose pages only the recorder could give.
LIAR = """#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

unsigned long Py_Version = 0x030b07f0;
long PyCode_Type[1], PyUnicode_Type[1], PyBytes_Type[1];
static void *thread[32], *cframe[2], *frame[16], *interpreter[4], *code[32];
void *_PyRuntime[8] = {[5] = interpreter};
struct text {
    long refs; void *type; long length, hash; unsigned state; char pad[12], letters[16];
};
static struct text name = {1, PyUnicode_Type, 4, 0, 0xe4, "", "lies"};
static struct { long refs; void *type; long length; } table = {1, PyBytes_Type, 0};

int main(void) {
    interpreter[0] = interpreter;
    interpreter[2] = thread[1] = thread;
    thread[20] = (void *)(long)gettid();
    thread[7] = cframe;
    cframe[1] = frame[6] = frame;
    frame[4] = code;
    code[1] = PyCode_Type;
    code[14] = code[16] = &name;
    code[17] = &table;
    mkdir("loop", 0755);
    table.length = 1L << 62;
    mkdir("table", 0755);
    table.length = 0;
    name.length = -1;
    mkdir("length", 0755);
    int file = open("file", O_RDWR | O_CREAT, 0644);
    if (ftruncate(file, 1 << 20)) return 1;
    code[14] = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, file, 0);
    mkdir("mapped", 0755);
    thread[20] = 0;
    mkdir("nobody", 0755);
    return 0;
}
"""


def find_pythons() -> list[str]:
    """One of each version that the PATH or pyenv has, and the one of the distribution."""
    found = {"/usr/bin/python3": None, sys.executable: None}
    versions = Path.home() / ".pyenv" / "versions"
    for version in KNOWN:
        pyenv = sorted(versions.glob(f"{version}.*/bin/python{version}"))
        found |= dict.fromkeys(map(str, pyenv))
        found |= dict.fromkeys(filter(None, [shutil.which(f"python{version}")]))
    return [each for each in found if Path(each).is_file() and "shims" not in each]


def version_of(python: str) -> str:
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def write_script(folder: Path, python: str) -> Path:
    (folder / "app.py").write_text(SCRIPT.format(python=python), encoding="utf-8")
    (folder / "h\u00e9lper.py").write_text(HELPER)
    (folder / "app.py").chmod(0o755)
    return folder / "app.py"


@pytest.mark.parametrize("python", find_pythons())
def test_the_line_of_a_script_is_told(tmp_path: Path, python: str) -> None:
    version = version_of(python)
    if version not in KNOWN:
        pytest.skip(f"Python {version} is not known")
    found, _ = record(tmp_path, write_script(tmp_path, python))
    # 3.10 and older have no qualified names.
    is_qualified = tuple(map(int, version.split("."))) >= (3, 11)
    script = [
        ("create", "saved", "Store.save" if is_qualified else "save", "CREATE"),
        ("mkdir", "made", "work", "THREAD"),
        ("mkdir", "generated", "pieces", "GENERATOR"),
        ("create", "written", "<module>", "PATHLIB"),
        ("create", "copied", "<module>", "SHUTIL"),
        ("mkdir", "by-lambda", "<lambda>", "LAMBDA"),
        ("mkdir", "forked", "<module>", "FORK"),
    ]
    for kind, path, function, mark in script:
        told = place_of(found, kind, path)
        assert told == ("app.py", function, line_of(SCRIPT, mark)), (kind, path)
    told = place_of(found, "unlink", "written")
    assert told == ("h\u00e9lper.py", "remove", line_of(HELPER, "REMOVE"))
    check_frames(tmp_path, found)


def check_frames(tmp_path: Path, found: list[dict[str, Any]]) -> None:
    """The calls of the script, those of the standard library among them, then the interpreter's."""
    frames = of_operation(found, "create", "written")
    files = [Path(each["file"]).name for each in frames]
    assert files.index("pathlib.py" if "pathlib.py" in files else "_local.py") < files.index(
        "app.py"
    )
    around = of_operation(found, "create", "saved")
    assert [each["function"] for each in around[1:2]] == ["<module>"]
    assert around[0]["module"] == around[0]["file"] == str(tmp_path / "app.py")
    assert "python" in Path(around[2]["module"]).name
    renamed = place_of(found, "rename", "saved")
    begin = SCRIPT.splitlines().index("    os.rename(") + 1
    # 3.7 takes the line of the last argument.
    assert renamed[1] == "nested" and begin <= renamed[2] <= begin + 2


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="there is no python3")
def test_a_script_in_a_pid_namespace_of_its_own_is_told(tmp_path: Path) -> None:
    """Where its threads have other numbers than the recorder sees."""
    if version_of("/usr/bin/python3") not in KNOWN:
        pytest.skip("the distribution's Python is not known")
    script = write_script(tmp_path, "/usr/bin/python3")
    around = tmp_path / "around"
    around.write_text(f"#!/bin/sh\nexec unshare --pid --fork {script}\n")
    around.chmod(0o755)
    found, _ = record(tmp_path, around)
    for path, function, mark in (("made", "work", "THREAD"), ("forked", "<module>", "FORK")):
        told = place_of(found, "mkdir", path)
        assert told == ("app.py", function, line_of(SCRIPT, mark)), path


TURNS = """#!/usr/bin/python3 -B
import os, random

def put(file):
    os.write(file, b"x")

even, odd = (os.open(name, os.O_WRONLY | os.O_CREAT) for name in ("even", "odd"))
for turn in range(200):
    kept = [0] * random.randrange(40000)
    if turn % 2 if turn < 100 else random.random() < 0.5:
        put(odd)  # ODD
    else:
        put(even)  # EVEN
"""


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="there is no python3")
def test_a_walk_that_is_known_again_is_of_the_same_line(tmp_path: Path) -> None:
    """In functions that are the same but for the line, while memory comes and goes."""
    if version_of("/usr/bin/python3") not in KNOWN:
        pytest.skip("the distribution's Python is not known")
    script = tmp_path / "app.py"
    script.write_text(TURNS)
    script.chmod(0o755)
    found, _ = record(tmp_path, script)
    written = [one for one in found if one["operation"] == "write"]
    assert len(written) == 200
    for one in written:
        told = [(each["function"], each["line"]) for each in one["by"]["frames"][:2]]
        assert told == [("put", 5), ("<module>", line_of(TURNS, one["path"].upper()))]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_what_lies_of_being_python_holds_nothing_up(tmp_path: Path) -> None:
    program = compile_program(tmp_path, LIAR, "-rdynamic", "-w").rename(tmp_path / "python3.11")
    found, _ = record(tmp_path, program)
    assert {each["file"] for each in of_operation(found, "mkdir", "loop")} == {"lies"}
    for path in ("table", "length", "mapped", "nobody"):
        assert of_operation(found, "mkdir", path)[0]["function"].startswith("main+0x"), path
