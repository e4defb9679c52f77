"""Twelve ways in which applications put data into files, each as a litmus program."""

from support.litmus.operations import Litmus
from support.litmus.steps import NEW, OLD, fsync, make, step, two, write


def idioms() -> tuple[Litmus, ...]:
    replaced = (make("foo"), write("foo", 0, OLD, "o"))
    write_new = (make("foo.new"), write("foo.new", 0, NEW, "A"))
    rename = two("rename", "foo.new", "foo")
    return (
        Litmus("replace: write, fsync, rename", (*write_new, fsync("foo.new"), rename), replaced),
        Litmus(
            "replace: write, fsync, rename, fsync of the directory",
            (*write_new, fsync("foo.new"), rename, fsync(".")),
            replaced,
        ),
        Litmus("replace: write, rename without fsync", (*write_new, rename), replaced),
        Litmus(
            "replace: truncate, write, fsync",
            ({**write("foo", 0, NEW, "A"), "truncate": True}, fsync("foo")),
            replaced,
        ),
        Litmus(
            "append, fsync, twice",
            (
                *(write("foo", OLD, NEW, "A"), fsync("foo")),
                *(write("foo", OLD + NEW, 1024, "B"), fsync("foo")),
            ),
            replaced,
        ),
        Litmus("create, fsync of the file only", (*write_new, fsync("foo.new")), ()),
        Litmus(
            "create, fsync of file and directory",
            (step("mkdir", "A"), make("A/foo"), write("A/foo", 0, NEW, "A"))
            + (fsync("A/foo"), fsync("A"), fsync(".")),
            (),
        ),
        _write_ahead(),
        Litmus(
            "lock by link, then unlink",
            (*write_new, fsync("foo.new"), two("link", "foo.new", "A/lock"))
            + (step("unlink", "foo.new"), fsync("A"), step("unlink", "A/lock")),
            (step("mkdir", "A"),),
        ),
        _dpkg(),
        _maildir(),
        _git_object(),
    )


def _write_ahead() -> Litmus:
    """A page is overwritten only when the log has it."""
    log, page = 3072, 4096
    return Litmus(
        "write-ahead log, then page",
        (
            *(write("log", 0, log, "A"), step("fdatasync", "log")),
            *(write("pages", page, page, "B"), step("fdatasync", "pages")),
            *(step("truncate", "log", size=0), write("log", 0, log, "C")),
            *(step("fdatasync", "log"), write("pages", 2 * page, page, "D")),
        ),
        (make("log"), make("pages"), write("pages", 0, 3 * page, "o")),
    )


def _dpkg() -> Litmus:
    """Unpacks beside, flushes each file, then moves all into place; the old is kept by a link."""
    files = ("A/foo", "A/bar")
    unpack = [
        each
        for name in files
        for each in (
            make(f"{name}.new"),
            write(f"{name}.new", 0, NEW, "A" if "f" in name else "B"),
        )
    ]
    place = [
        each
        for name in files
        for each in (two("link", name, f"{name}.old"), two("rename", f"{name}.new", name))
    ]
    return Litmus(
        "dpkg: unpack, fsync all, rename all",
        (
            *unpack,
            *(fsync(f"{name}.new") for name in files),
            *place,
            fsync("A"),
            *(step("unlink", f"{name}.old") for name in files),
        ),
        (
            step("mkdir", "A"),
            *(each for name in files for each in (make(name), write(name, 0, OLD, "o"))),
        ),
    )


def _maildir() -> Litmus:
    return Litmus(
        "maildir: write in tmp, link into new",
        (make("A/foo"), write("A/foo", 0, NEW, "A"), fsync("A/foo"))
        + (two("link", "A/foo", "B/foo"), fsync("B"), step("unlink", "A/foo")),
        (step("mkdir", "A"), step("mkdir", "B")),
    )


def _git_object() -> Litmus:
    """A loose object and the branch that names it."""
    return Litmus(
        "git: loose object, then the branch",
        (
            *(step("mkdir", "B"), make("B/temporary"), write("B/temporary", 0, 1024, "A")),
            *(fsync("B/temporary"), two("link", "B/temporary", "B/foo")),
            *(step("unlink", "B/temporary"), make("bar.lock"), write("bar.lock", 0, 41, "B")),
            *(fsync("bar.lock"), two("rename", "bar.lock", "bar")),
        ),
        (make("bar"), write("bar", 0, 41, "o")),
    )
