"""The programs by which CrashMonkey and ACE showed that file systems of Linux 3.12 to 4.16 lost
what was flushed: its ten new bugs and, of those it found again, what operations and trees here can
show. docs/crash-published.md has what today's kernel leaves of them.

Many need what was there to be in the same transaction or in an earlier one of the same mount, so
little of them is ``setup``.
"""

from support.litmus.operations import Litmus, Operation
from support.litmus.steps import OLD, fsync, make, step, two, write

PAGES = 16384
_SYNC = step("sync", ".")


def published() -> tuple[Litmus, ...]:
    return (*_new(), *_of_links(), *_of_renames(), *_of_directories(), *_of_content())


def _folders(*names: str) -> tuple[Operation, ...]:
    return tuple(step("mkdir", name) for name in names)


def _new() -> tuple[Litmus, ...]:
    renamed = (*_folders("A"), _SYNC, two("rename", "A", "B"), make("B/foo"), fsync("B/foo"))
    keep = {"offset": PAGES, "bytes": 4096}
    written = (make("foo"), write("foo", 0, PAGES, "A"), fsync("foo"))
    return (
        Litmus(
            "CrashMonkey 1: a file lost in a rename",
            (*_folders("A"), make("A/bar"), fsync("A/bar"), *_folders("B"), make("B/bar"))
            + (two("rename", "B/bar", "A/bar"), make("A/foo"), fsync("A/foo"), fsync("A")),
        ),
        Litmus(
            "CrashMonkey 2: a renamed file in both directories",
            (*_folders("A", "A/C"), two("rename", "A/C", "B"), make("B/bar"), fsync("B/bar"))
            + (two("rename", "B/bar", "A/bar"), two("rename", "A", "B"), fsync("B/bar")),
        ),
        Litmus(
            "CrashMonkey 3: fsync of a directory, which is gone",
            (*_folders("A", "B", "A/C"), make("B/foo"), fsync("B/foo"))
            + (two("link", "B/foo", "A/C/foo"), fsync("A")),
        ),
        Litmus("CrashMonkey 4: a renamed directory, fsync of it", (*renamed, fsync("B"))),
        Litmus(
            "CrashMonkey 5: a link, fsync by both names",
            (*_folders("A", "B"), make("A/foo"), two("link", "A/foo", "B/foo"))
            + (fsync("A/foo"), fsync("B/foo")),
        ),
        Litmus(
            "CrashMonkey 6: fsync of a directory, without a file of it",
            (*_folders("A", "A/C"), make("A/foo"), make("A/C/foo"), fsync("A/C/foo"), fsync("A")),
        ),
        Litmus(
            "CrashMonkey 7: fsync of a file with two names",
            (make("foo"), *_folders("A"), two("link", "foo", "A/bar"), fsync("foo")),
        ),
        Litmus(
            "CrashMonkey 8: blocks behind the end, fallocate",
            (*written, step("fallocate", "foo", mode="keep", **keep), fsync("foo")),
        ),
        Litmus(
            "CrashMonkey 9: blocks behind the end, zeros",
            (*written, step("fallocate", "foo", mode="zero,keep", **keep), fsync("foo")),
        ),
        Litmus("CrashMonkey 10: a renamed directory, fsync of a new file in it", renamed),
    )


def _of_links() -> tuple[Litmus, ...]:
    two_names = (*_folders("A"), make("A/foo"), two("link", "A/foo", "A/bar"), _SYNC)
    return (
        Litmus("generic/039", (*two_names, step("unlink", "A/bar"), fsync("A/foo"))),
        Litmus(
            "generic/056",
            (make("foo"), write("foo", 0, PAGES, "A"), fsync("foo"), two("link", "foo", "bar"))
            + (make("other"), fsync("other")),
        ),
        Litmus(
            "generic/090",
            (make("foo"), write("foo", 0, OLD, "A"), two("link", "foo", "bar"), _SYNC)
            + (write("foo", OLD, PAGES, "B"), fsync("foo")),
        ),
        Litmus(
            "generic/104",
            (*_folders("A"), make("A/foo"), make("A/bar"), _SYNC)
            + (two("link", "A/foo", "A/foo2"), two("link", "A/bar", "A/bar2"), fsync("A/bar")),
        ),
        Litmus(
            "generic/107",
            (*_folders("A", "B"), make("A/foo"), two("link", "A/foo", "B/foo"), _SYNC)
            + (step("unlink", "B/foo"), fsync("A/foo")),
        ),
        Litmus(
            "btrfs_link_unlink",
            (make("foo"), two("link", "foo", "bar"), _SYNC, step("unlink", "bar"), make("bar"))
            + (fsync("bar"),),
        ),
    )


def _of_renames() -> tuple[Litmus, ...]:
    return (
        Litmus(
            "generic/321",
            (*_folders("A", "B"), make("A/foo"), fsync("A/foo"), _SYNC)
            + (two("rename", "A/foo", "B/foo"), fsync("B"), fsync("B/foo")),
        ),
        Litmus(
            "generic/322",
            (*_folders("A"), make("A/foo"), write("A/foo", 0, OLD, "A"), fsync("A/foo"))
            + (two("rename", "A/foo", "A/bar"), fsync("A/bar")),
        ),
        Litmus(
            "generic/335",
            (*_folders("A", "A/B", "C"), make("A/B/foo"), _SYNC)
            + (two("rename", "A/B/foo", "C/foo"), make("A/bar"), fsync("A")),
        ),
        Litmus(
            "generic/336",
            (*_folders("A", "B", "C"), make("A/foo"), two("link", "A/foo", "B/foo2"))
            + (make("B/bar"), _SYNC, step("unlink", "B/foo2"), two("rename", "B/bar", "C/bar"))
            + (fsync("A/foo"),),
        ),
        Litmus(
            "generic/342",
            (make("foo"), write("foo", 0, PAGES, "A"), _SYNC, two("rename", "foo", "bar"))
            + (make("foo"), write("foo", 0, PAGES, "B"), fsync("foo")),
        ),
        Litmus(
            "generic/376",
            (*_folders("A"), make("A/foo"), fsync("A/foo"), two("rename", "A/foo", "A/bar"))
            + (make("A/foo"), fsync("A/bar")),
        ),
    )


def _of_directories() -> tuple[Litmus, ...]:
    return (
        Litmus(
            "generic/034",
            (*_folders("A"), make("A/foo"), _SYNC, make("A/bar"), fsync("A"), fsync("A/bar")),
        ),
        Litmus(
            "generic/341",
            (*_folders("A", "A/x"), make("A/x/foo"), make("A/x/bar"), _SYNC)
            + (two("rename", "A/x", "A/y"), *_folders("A/x"), fsync("A/x")),
        ),
        Litmus(
            "generic/343",
            (*_folders("A", "A/x", "A/y", "A/x/z"), make("A/x/foo"), make("A/y/foo"), _SYNC)
            + (two("link", "A/x/foo", "A/x/bar"), two("rename", "A/x/z", "A/y/z"))
            + (two("link", "A/y/foo", "A/y/bar"), fsync("A/x/foo"), fsync("A/y/foo")),
        ),
        Litmus("generic/348", (*_folders("A"), _SYNC, two("symlink", "A/bar", "foo"), fsync("A"))),
    )


def _of_content() -> tuple[Litmus, ...]:
    written = (make("foo"), write("foo", 0, PAGES, "A"))
    attributes = tuple(
        step("setxattr", "foo", name=f"user.{each}", value=each * 40) for each in ("one", "two")
    )
    front, back = (
        step("mmapwrite", "foo", offset=at, bytes=4096, fill=fill)
        for at, fill in ((0, "B"), (PAGES - 4096, "C"))
    )
    punched = (
        step("fallocate", "foo", mode="punch,keep", offset=at, bytes=8192) for at in (2048, 6144)
    )
    return (
        Litmus(
            "generic/059",
            (*written, _SYNC, step("fallocate", "foo", mode="punch,keep", offset=8100, bytes=90))
            + (fsync("foo"),),
        ),
        Litmus(
            "generic/066",
            (make("foo"), *attributes, _SYNC, step("removexattr", "foo", name="user.two"))
            + (fsync("foo"),),
        ),
        Litmus("generic/177", (*written, _SYNC, *punched, fsync("foo"))),
        Litmus("generic/325", (*written, _SYNC, front, back)),
        Litmus(
            "generic_ext4_direct_write",
            (make("foo"), write("foo", 0, PAGES + 512, "A"))
            + (step("dwrite", "foo", offset=4096, bytes=4096, fill="B"), fsync("foo")),
        ),
    )
