"""What was put last with sync is there, and then all before it: writes are kept in their order."""

import os
import sys
from contextlib import closing
from pathlib import Path

import plyvel

try:
    with closing(plyvel.DB("db")) as database:
        found = {int(name) for name, _ in database.iterator(verify_checksums=True)}
except plyvel.Error as error:
    print(0, error)
    sys.exit(2)
if found != set(range(1, len(found) + 1)):
    print(0, "of the keys 1 to 6 there are only", *sorted(found))
    sys.exit(2)
lost = len(set(map(int, Path(os.environ["DISKPROOF_ACKNOWLEDGED"]).read_text().split())) - found)
if lost:
    print(lost)
sys.exit(1 if lost else 0)
