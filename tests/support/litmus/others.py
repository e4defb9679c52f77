"""Litmus programs beside the bounds of B3's generator: other operations and orders, and the
smallest programs of what real file systems were seen to leave (docs/crash-model.md).

The fsync of another file makes the kernel commit names and sizes, and data only as the file system
orders it.
"""

from support.litmus.operations import Litmus
from support.litmus.steps import read_programs

PROGRAMS = """
symlink, fsync of its directory
    before: mkdir A; mkdir B; creat A/foo
    symlink A/bar foo; fsync A
rmdir, fsync of its directory
    before: mkdir A; mkdir B; creat A/foo
    rmdir B; fsync .
rename across directories, fsync of the old one
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; fsync A
rename across directories, fsync of the new one
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; fsync B
write, rename without fsync, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    creat foo.new; write foo.new offset=0 bytes=12288 fill=A; rename foo.new foo; creat bar
    fsync bar
# Its directory is never flushed: on btrfs no file has the name any more (found by B3).
replace what was flushed by what was not, fsync of another
    creat bar; write bar offset=0 bytes=9216 fill=A; fsync bar; creat foo
    write foo offset=0 bytes=12288 fill=B; rename foo bar; creat other; fsync other
rename over a linked name, fsync of another
    creat bar; mkdir A; link bar A/bar; fsync A/bar; creat foo; rename foo bar; creat A/foo
    fsync A/foo
one name twice, fsync below it
    mkdir A; rename A B; mkdir A; creat A/foo; fsync A/foo

# Of btrfs's log, which may hold the new directory without the old one.
rename across directories, and again
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; rename B/foo foo; fsync .
rename across directories, fsync of the file
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; fsync B; fsync B/foo
rename across directories, fsync below the new one
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; fsync B; creat B/bar; fsync B/bar
rename across directories, a new file of the old name
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; creat A/foo; fsync B
rename across directories, fsync, unlink, fsync
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; fsync B; unlink B/foo; fsync B
rename across directories, and back
    before: mkdir A; mkdir B; creat A/foo
    rename A/foo B/foo; fsync B; rename B/foo A/foo; fsync A

append, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=9216 bytes=12288 fill=A; creat bar; fsync bar
two appends, fdatasync
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=9216 bytes=12288 fill=A; write foo offset=21504 bytes=12288 fill=B
    fdatasync foo
two appends, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=9216 bytes=12288 fill=A; write foo offset=21504 bytes=12288 fill=B; creat bar
    fsync bar
a write behind a hole, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=40960 bytes=12288 fill=A; creat bar; fsync bar
an overwrite, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=0 bytes=9216 fill=A; creat bar; fsync bar
msync of the front, fsync of another
    creat foo; write foo offset=0 bytes=12288 fill=A; mmapwrite foo offset=0 bytes=4096 fill=B
    creat bar; fsync bar

truncate within a block
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    truncate foo size=2500
written, shorter, fsync of another
    before: creat foo
    write foo offset=0 bytes=9216 fill=A; truncate foo size=2500; creat bar; fsync bar
overwritten, shorter, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    write foo offset=0 bytes=9216 fill=A; truncate foo size=2500; creat bar; fsync bar
shorter, longer again, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    truncate foo size=2500; write foo offset=6000 bytes=6288 fill=A; creat bar; fsync bar
shorter, longer by truncate, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    truncate foo size=2500; truncate foo size=12288; creat bar; fsync bar
# btrfs has the zeros of a truncation in memory alone, until something comes to their block.
shorter, fsync, longer again, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    truncate foo size=2500; fsync foo; write foo offset=2500 bytes=6716 fill=A; creat bar; fsync bar
shorter, fsync, longer by truncate, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    truncate foo size=2500; fsync foo; truncate foo size=9216; creat bar; fsync bar
shorter, fsync, longer by a range, fsync of another
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    truncate foo size=2500; fsync foo; fallocate foo mode= offset=4096 bytes=5120; creat bar
    fsync bar
shorter, fsync, a write before its block, fsync, longer
    before: creat foo; write foo offset=0 bytes=12288 fill=o
    truncate foo size=6500; fsync foo; write foo offset=0 bytes=4096 fill=A; fsync foo
    truncate foo size=8192; creat bar; fsync bar

zero,keep in what was durable, fsync
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    fallocate foo mode=zero,keep offset=1000 bytes=7000; fsync foo
punch,keep in what was durable, fsync
    before: creat foo; write foo offset=0 bytes=9216 fill=o
    fallocate foo mode=punch,keep offset=1000 bytes=7000; fsync foo
"""


def others() -> tuple[Litmus, ...]:
    return read_programs(PROGRAMS)
