"""Litmus programs beside the bounds of B3's generator: other operations and orders, and the
smallest programs of what real file systems were seen to leave (docs/crash-model.md)."""

from support.litmus.operations import Litmus, Operation
from support.litmus.steps import NEW, OLD, fsync, make, step, two, write

_FOLDERS = (step("mkdir", "A"), step("mkdir", "B"), make("A/foo"))
_FILLED = (make("foo"), write("foo", 0, OLD, "o"))
_OTHER = (make("bar"), fsync("bar"))
"""What makes the kernel commit names and sizes, and data only as the file system orders it."""


def others() -> tuple[Litmus, ...]:
    return (*_of_names(), *_of_moves(), *_of_sizes(), *_of_truncation(), *_of_holes())


def _of_names() -> tuple[Litmus, ...]:
    symlink, moved = two("symlink", "A/bar", "foo"), two("rename", "A/foo", "B/foo")
    new, over = (make("foo.new"), write("foo.new", 0, NEW, "A")), two("rename", "foo", "bar")
    return (
        Litmus("symlink, fsync of its directory", (symlink, fsync("A")), _FOLDERS),
        Litmus("rmdir, fsync of its directory", (step("rmdir", "B"), fsync(".")), _FOLDERS),
        Litmus("rename across directories, fsync of the old one", (moved, fsync("A")), _FOLDERS),
        Litmus("rename across directories, fsync of the new one", (moved, fsync("B")), _FOLDERS),
        Litmus(
            "write, rename without fsync, fsync of another",
            (*new, two("rename", "foo.new", "foo"), *_OTHER),
            _FILLED,
        ),
        # Its directory is never flushed: on btrfs no file has the name any more (found by B3).
        Litmus(
            "replace what was flushed by what was not, fsync of another",
            (make("bar"), write("bar", 0, OLD, "A"), fsync("bar"))
            + (make("foo"), write("foo", 0, NEW, "B"), over, make("other"), fsync("other")),
        ),
        Litmus(
            "rename over a linked name, fsync of another",
            (make("bar"), step("mkdir", "A"), two("link", "bar", "A/bar"), fsync("A/bar"))
            + (make("foo"), over, make("A/foo"), fsync("A/foo")),
        ),
        Litmus(
            "one name twice, fsync below it",
            (step("mkdir", "A"), two("rename", "A", "B"), step("mkdir", "A"))
            + (make("A/foo"), fsync("A/foo")),
        ),
    )


def _of_moves() -> tuple[Litmus, ...]:
    """Of btrfs's log, which may hold the new directory without the old one."""
    moved, new = two("rename", "A/foo", "B/foo"), fsync("B")
    later = {
        "and again": (two("rename", "B/foo", "foo"), fsync(".")),
        "fsync of the file": (new, fsync("B/foo")),
        "fsync below the new one": (new, make("B/bar"), fsync("B/bar")),
        "a new file of the old name": (make("A/foo"), new),
        "fsync, unlink, fsync": (new, step("unlink", "B/foo"), new),
        "and back": (new, two("rename", "B/foo", "A/foo"), fsync("A")),
    }
    return tuple(
        Litmus(f"rename across directories, {name}", (moved, *steps), _FOLDERS)
        for name, steps in later.items()
    )


def _of_sizes() -> tuple[Litmus, ...]:
    first, second = write("foo", OLD, NEW, "A"), write("foo", OLD + NEW, NEW, "B")
    front = step("mmapwrite", "foo", offset=0, bytes=4096, fill="B")
    return (
        Litmus("append, fsync of another", (first, *_OTHER), _FILLED),
        Litmus("two appends, fdatasync", (first, second, step("fdatasync", "foo")), _FILLED),
        Litmus("two appends, fsync of another", (first, second, *_OTHER), _FILLED),
        Litmus(
            "a write behind a hole, fsync of another",
            (write("foo", 40960, NEW, "A"), *_OTHER),
            _FILLED,
        ),
        Litmus("an overwrite, fsync of another", (write("foo", 0, OLD, "A"), *_OTHER), _FILLED),
        Litmus(
            "msync of the front, fsync of another",
            (make("foo"), write("foo", 0, NEW, "A"), front, *_OTHER),
        ),
    )


def _of_truncation() -> tuple[Litmus, ...]:
    shorter: Operation = step("truncate", "foo", size=2500)
    written = (write("foo", 0, OLD, "A"), shorter, *_OTHER)
    return (
        Litmus("truncate within a block", (shorter,), _FILLED),
        Litmus("written, shorter, fsync of another", written, (make("foo"),)),
        Litmus("overwritten, shorter, fsync of another", written, _FILLED),
        Litmus(
            "shorter, longer again, fsync of another",
            (shorter, write("foo", 6000, 6288, "A"), *_OTHER),
            _FILLED,
        ),
        Litmus(
            "shorter, longer by truncate, fsync of another",
            (shorter, step("truncate", "foo", size=NEW), *_OTHER),
            _FILLED,
        ),
    )


def _of_holes() -> tuple[Litmus, ...]:
    return tuple(
        Litmus(
            f"{mode} in what was durable, fsync",
            (step("fallocate", "foo", mode=mode, offset=1000, bytes=7000), fsync("foo")),
            _FILLED,
        )
        for mode in ("zero,keep", "punch,keep")
    )
