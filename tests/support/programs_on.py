"""Programs and checks that `crash --on` is tried with, by the names of their files."""

from support.renaming import CHECK, renaming_writer

WRITER = renaming_writer(2)
ORDER = """
import os
with open("new", "w") as stream:
    stream.write("x" * 8192)
with open("other", "w") as stream:
    stream.write("y")
    stream.flush()
    os.fsync(stream.fileno())  # commits the journal, and with it what "new" is called and how long
print("other", flush=True)
"""
UNFLUSHED = """
import os
for number in range(1, 21):
    with open("new", "w") as stream:
        stream.write("x" * 8192)
    os.rename("new", f"file{number}")
    print(number, flush=True)
"""
WHOLE_OR_MISSING = """
import pathlib, sys
sys.exit(0 if all(file.read_bytes() for file in pathlib.Path().glob("file*")) else 2)
"""
WHOLE_OR_EMPTY = """
import pathlib, sys
new = pathlib.Path("new")
text = new.read_bytes() if new.exists() else b""
sys.exit(0 if not text.strip(b"x") else 2)
"""
LEAVES = """
import os, subprocess, sys, time
subprocess.Popen(
    [sys.executable, "-c", "f = open('left', 'w'); import time; time.sleep(999)"],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    start_new_session=True,
)
deadline = time.monotonic() + 30
while not os.path.exists("left") and time.monotonic() < deadline:
    time.sleep(0.01)
"""
HANGS = """
import os, pathlib, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "f = open('held', 'w'); import time; time.sleep(999)"],
                 start_new_session=True)
pathlib.Path(sys.argv[0]).with_name("mark").touch()
time.sleep(999)
"""
AGAIN = """
import pathlib, sys
with pathlib.Path(sys.argv[0]).with_name("runs").open("a") as runs:
    is_first = not runs.tell()
    runs.write("x")
if not is_first:
    exec(pathlib.Path(sys.argv[0]).with_name("hangs.py").read_text())
"""
ASIDE = """
import pathlib, sys
count = pathlib.Path(sys.argv[0]).with_name("count")
with count.open("a") as stream:
    before = stream.tell()
    stream.write("x")
sys.exit(before % 2)
"""
PROGRAMS = {
    "again": AGAIN + WRITER,
    "aside": ASIDE,
    "check": CHECK,
    "hangs": HANGS,
    "leaves": LEAVES + WRITER,
    "leaving": LEAVES + CHECK,
    "missing": WHOLE_OR_MISSING,
    "order": ORDER,
    "unflushed": UNFLUSHED,
    "whole": WHOLE_OR_EMPTY,
    "writer": WRITER,
}
