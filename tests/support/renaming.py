"""A program that promises a file's content by renaming, and its check."""

_WRITER = """
import os, sys
def sync(path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
for number in range(1, RECORDS + 1):
    with open("data.new", "w") as stream:
        stream.write(str(number) * 600)
    if sys.argv[1] == "synced":
        sync("data.new")
    os.rename("data.new", "data")
    if sys.argv[1] == "synced":
        sync(".")
    if sys.argv[1] == "sync":
        os.sync()
    print(number, flush=True)
"""
CHECK = """
import os, pathlib, sys
promised = len(open(os.environ["DISKPROOF_ACKNOWLEDGED"]).read().split())
data = pathlib.Path("data")
text = data.read_text() if data.exists() else ""
found = next((n for n in range(1, 30) if text == str(n) * 600), 0)
if text and not found:
    sys.exit(2)
if found < promised:
    print(promised - found)
    sys.exit(1)
"""


def renaming_writer(records: int) -> str:
    """So few records that all that decides is checked on a busy host, too. Its argument:
    ``synced``, ``sync`` (sync(2) alone) or another word."""
    return _WRITER.replace("RECORDS", str(records))
