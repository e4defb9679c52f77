"""Twelve ways in which applications put data into files, each as a litmus program.

Old content has 9216 bytes, new content 12288: not the same blocks, and more than one, so that what
is torn or of the wrong length shows.
"""

from support.litmus.operations import Litmus
from support.litmus.steps import read_programs

PROGRAMS = """
replace: write, fsync, rename
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    creat foo.new; write foo.new offset=0 bytes=12288 fill=A; fsync foo.new; rename foo.new foo
replace: write, fsync, rename, fsync of the directory
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    creat foo.new; write foo.new offset=0 bytes=12288 fill=A; fsync foo.new; rename foo.new foo
    fsync .
replace: write, rename without fsync
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    creat foo.new; write foo.new offset=0 bytes=12288 fill=A; rename foo.new foo
replace: truncate, write, fsync
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=0 bytes=12288 fill=A truncate=true; fsync foo
append, fsync, twice
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=9216 bytes=12288 fill=A; fsync foo; write foo offset=21504 bytes=1024 fill=B
    fsync foo
create, fsync of the file only
    creat foo.new; write foo.new offset=0 bytes=12288 fill=A; fsync foo.new
create, fsync of file and directory
    mkdir A; creat A/foo; write A/foo offset=0 bytes=12288 fill=A; fsync A/foo; fsync A; fsync .
# A page is overwritten only when the log has it.
write-ahead log, then page
    before: creat log; creat pages; write pages offset=0 bytes=12288 fill=o
    write log offset=0 bytes=3072 fill=A; fdatasync log; write pages offset=4096 bytes=4096 fill=B
    fdatasync pages; truncate log size=0; write log offset=0 bytes=3072 fill=C; fdatasync log
    write pages offset=8192 bytes=4096 fill=D
lock by link, then unlink
    before: mkdir A
    creat foo.new; write foo.new offset=0 bytes=12288 fill=A; fsync foo.new; link foo.new A/lock
    unlink foo.new; fsync A; unlink A/lock
# Unpacks beside, flushes each file, then moves all into place; the old is kept by a link.
dpkg: unpack, fsync all, rename all
    before: mkdir A; creat A/foo; write A/foo offset=0 bytes=9216 fill=o; creat A/bar
    before: write A/bar offset=0 bytes=9216 fill=o
    creat A/foo.new; write A/foo.new offset=0 bytes=12288 fill=A; creat A/bar.new
    write A/bar.new offset=0 bytes=12288 fill=B; fsync A/foo.new; fsync A/bar.new
    link A/foo A/foo.old; rename A/foo.new A/foo; link A/bar A/bar.old; rename A/bar.new A/bar
    fsync A; unlink A/foo.old; unlink A/bar.old
maildir: write in tmp, link into new
    before: mkdir A; mkdir B
    creat A/foo; write A/foo offset=0 bytes=12288 fill=A; fsync A/foo; link A/foo B/foo; fsync B
    unlink A/foo
# A loose object and the branch that names it.
git: loose object, then the branch
    before: creat bar; write bar offset=0 bytes=41 fill=o
    mkdir B; creat B/temporary; write B/temporary offset=0 bytes=1024 fill=A; fsync B/temporary
    link B/temporary B/foo; unlink B/temporary; creat bar.lock
    write bar.lock offset=0 bytes=41 fill=B; fsync bar.lock; rename bar.lock bar
"""


def idioms() -> tuple[Litmus, ...]:
    return read_programs(PROGRAMS)
