"""The programs by which CrashMonkey and ACE showed that file systems of Linux 3.12 to 4.16 lost
what was flushed: its ten new bugs and, of those it found again, what operations and trees here can
show. docs/crash-published.md has what today's kernel leaves of them.

Many need what was there to be in the same transaction or in an earlier one of the same mount, so
little of them is ``setup``.
"""

from support.litmus.operations import Litmus
from support.litmus.steps import read_programs

PROGRAMS = """
CrashMonkey 1: a file lost in a rename
    mkdir A; creat A/bar; fsync A/bar; mkdir B; creat B/bar; rename B/bar A/bar; creat A/foo
    fsync A/foo; fsync A
CrashMonkey 2: a renamed file in both directories
    mkdir A; mkdir A/C; rename A/C B; creat B/bar; fsync B/bar; rename B/bar A/bar; rename A B
    fsync B/bar
CrashMonkey 3: fsync of a directory, which is gone
    mkdir A; mkdir B; mkdir A/C; creat B/foo; fsync B/foo; link B/foo A/C/foo; fsync A
CrashMonkey 4: a renamed directory, fsync of it
    mkdir A; sync .; rename A B; creat B/foo; fsync B/foo; fsync B
CrashMonkey 5: a link, fsync by both names
    mkdir A; mkdir B; creat A/foo; link A/foo B/foo; fsync A/foo; fsync B/foo
CrashMonkey 6: fsync of a directory, without a file of it
    mkdir A; mkdir A/C; creat A/foo; creat A/C/foo; fsync A/C/foo; fsync A
CrashMonkey 7: fsync of a file with two names
    creat foo; mkdir A; link foo A/bar; fsync foo
CrashMonkey 8: blocks behind the end, fallocate
    creat foo; write foo offset=0 bytes=16384 fill=A; fsync foo
    fallocate foo mode=keep offset=16384 bytes=4096; fsync foo
CrashMonkey 9: blocks behind the end, zeros
    creat foo; write foo offset=0 bytes=16384 fill=A; fsync foo
    fallocate foo mode=zero,keep offset=16384 bytes=4096; fsync foo
CrashMonkey 10: a renamed directory, fsync of a new file in it
    mkdir A; sync .; rename A B; creat B/foo; fsync B/foo

generic/039
    mkdir A; creat A/foo; link A/foo A/bar; sync .; unlink A/bar; fsync A/foo
generic/056
    creat foo; write foo offset=0 bytes=16384 fill=A; fsync foo; link foo bar; creat other
    fsync other
generic/090
    creat foo; write foo offset=0 bytes=9216 fill=A; link foo bar; sync .
    write foo offset=9216 bytes=16384 fill=B; fsync foo
generic/104
    mkdir A; creat A/foo; creat A/bar; sync .; link A/foo A/foo2; link A/bar A/bar2; fsync A/bar
generic/107
    mkdir A; mkdir B; creat A/foo; link A/foo B/foo; sync .; unlink B/foo; fsync A/foo
btrfs_link_unlink
    creat foo; link foo bar; sync .; unlink bar; creat bar; fsync bar

generic/321
    mkdir A; mkdir B; creat A/foo; fsync A/foo; sync .; rename A/foo B/foo; fsync B; fsync B/foo
generic/322
    mkdir A; creat A/foo; write A/foo offset=0 bytes=9216 fill=A; fsync A/foo
    rename A/foo A/bar; fsync A/bar
generic/335
    mkdir A; mkdir A/B; mkdir C; creat A/B/foo; sync .; rename A/B/foo C/foo; creat A/bar
    fsync A
generic/336
    mkdir A; mkdir B; mkdir C; creat A/foo; link A/foo B/foo2; creat B/bar; sync .
    unlink B/foo2; rename B/bar C/bar; fsync A/foo
generic/342
    creat foo; write foo offset=0 bytes=16384 fill=A; sync .; rename foo bar; creat foo
    write foo offset=0 bytes=16384 fill=B; fsync foo
generic/376
    mkdir A; creat A/foo; fsync A/foo; rename A/foo A/bar; creat A/foo; fsync A/bar

generic/034
    mkdir A; creat A/foo; sync .; creat A/bar; fsync A; fsync A/bar
generic/341
    mkdir A; mkdir A/x; creat A/x/foo; creat A/x/bar; sync .; rename A/x A/y; mkdir A/x
    fsync A/x
generic/343
    mkdir A; mkdir A/x; mkdir A/y; mkdir A/x/z; creat A/x/foo; creat A/y/foo; sync .
    link A/x/foo A/x/bar; rename A/x/z A/y/z; link A/y/foo A/y/bar; fsync A/x/foo; fsync A/y/foo
generic/348
    mkdir A; sync .; symlink A/bar foo; fsync A

generic/059
    creat foo; write foo offset=0 bytes=16384 fill=A; sync .
    fallocate foo mode=punch,keep offset=8100 bytes=90; fsync foo
generic/066
    creat foo; setxattr foo name=user.one value=one*40; setxattr foo name=user.two value=two*40
    sync .; removexattr foo name=user.two; fsync foo
generic/177
    creat foo; write foo offset=0 bytes=16384 fill=A; sync .
    fallocate foo mode=punch,keep offset=2048 bytes=8192
    fallocate foo mode=punch,keep offset=6144 bytes=8192; fsync foo
generic/325
    creat foo; write foo offset=0 bytes=16384 fill=A; sync .
    mmapwrite foo offset=0 bytes=4096 fill=B; mmapwrite foo offset=12288 bytes=4096 fill=C
generic_ext4_direct_write
    creat foo; write foo offset=0 bytes=16896 fill=A; dwrite foo offset=4096 bytes=4096 fill=B
    fsync foo
"""


def published() -> tuple[Litmus, ...]:
    return read_programs(PROGRAMS)
