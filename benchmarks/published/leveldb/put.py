"""Puts without sync, then one with it: LazyFS's cases 4 and 5. The buffer is so small that the log
is changed on the way."""

import sys
from contextlib import closing

import plyvel

LAST = 6

with closing(plyvel.DB("db", create_if_missing=True, write_buffer_size=1 << 16)) as database:
    if sys.argv[1:] != ["prepare"]:
        for number in range(1, LAST + 1):
            database.put(b"%d" % number, b"%d" % number * 20000, sync=number == LAST)
        print(LAST, flush=True)
