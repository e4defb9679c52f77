"""Twelve ways in which applications put data into files, each as a litmus program."""

from support.litmus.operations import Litmus, Operation

OLD, NEW = 9216, 12288
"""Not the same blocks, and more than one: what is torn or of the wrong length shows."""


def idioms() -> tuple[Litmus, ...]:
    replaced = (_make("foo"), _write("foo", 0, OLD, "o"))
    write_new = (_make("foo.new"), _write("foo.new", 0, NEW, "A"))
    rename = _two("rename", "foo.new", "foo")
    return (
        Litmus("replace: write, fsync, rename", (*write_new, _fsync("foo.new"), rename), replaced),
        Litmus(
            "replace: write, fsync, rename, fsync of the directory",
            (*write_new, _fsync("foo.new"), rename, _fsync(".")),
            replaced,
        ),
        Litmus("replace: write, rename without fsync", (*write_new, rename), replaced),
        Litmus(
            "replace: truncate, write, fsync",
            ({**_write("foo", 0, NEW, "A"), "truncate": True}, _fsync("foo")),
            replaced,
        ),
        Litmus(
            "append, fsync, twice",
            (
                *(_write("foo", OLD, NEW, "A"), _fsync("foo")),
                *(_write("foo", OLD + NEW, 1024, "B"), _fsync("foo")),
            ),
            replaced,
        ),
        Litmus("create, fsync of the file only", (*write_new, _fsync("foo.new")), ()),
        Litmus(
            "create, fsync of file and directory",
            (_path("mkdir", "A"), _make("A/foo"), _write("A/foo", 0, NEW, "A"))
            + (_fsync("A/foo"), _fsync("A"), _fsync(".")),
            (),
        ),
        _write_ahead(),
        Litmus(
            "lock by link, then unlink",
            (*write_new, _fsync("foo.new"), _two("link", "foo.new", "A/lock"))
            + (_path("unlink", "foo.new"), _fsync("A"), _path("unlink", "A/lock")),
            (_path("mkdir", "A"),),
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
            *(_write("log", 0, log, "A"), _path("fdatasync", "log")),
            *(_write("pages", page, page, "B"), _path("fdatasync", "pages")),
            *(_path("truncate", "log", size=0), _write("log", 0, log, "C")),
            *(_path("fdatasync", "log"), _write("pages", 2 * page, page, "D")),
        ),
        (_make("log"), _make("pages"), _write("pages", 0, 3 * page, "o")),
    )


def _dpkg() -> Litmus:
    """Unpacks beside, flushes each file, then moves all into place; the old is kept by a link."""
    files = ("A/foo", "A/bar")
    unpack = [
        step
        for name in files
        for step in (
            _make(f"{name}.new"),
            _write(f"{name}.new", 0, NEW, "A" if "f" in name else "B"),
        )
    ]
    place = [
        step
        for name in files
        for step in (_two("link", name, f"{name}.old"), _two("rename", f"{name}.new", name))
    ]
    return Litmus(
        "dpkg: unpack, fsync all, rename all",
        (
            *unpack,
            *(_fsync(f"{name}.new") for name in files),
            *place,
            _fsync("A"),
            *(_path("unlink", f"{name}.old") for name in files),
        ),
        (
            _path("mkdir", "A"),
            *(step for name in files for step in (_make(name), _write(name, 0, OLD, "o"))),
        ),
    )


def _maildir() -> Litmus:
    return Litmus(
        "maildir: write in tmp, link into new",
        (_make("A/foo"), _write("A/foo", 0, NEW, "A"), _fsync("A/foo"))
        + (_two("link", "A/foo", "B/foo"), _fsync("B"), _path("unlink", "A/foo")),
        (_path("mkdir", "A"), _path("mkdir", "B")),
    )


def _git_object() -> Litmus:
    """A loose object and the branch that names it."""
    return Litmus(
        "git: loose object, then the branch",
        (
            *(_path("mkdir", "B"), _make("B/temporary"), _write("B/temporary", 0, 1024, "A")),
            *(_fsync("B/temporary"), _two("link", "B/temporary", "B/foo")),
            *(_path("unlink", "B/temporary"), _make("bar.lock"), _write("bar.lock", 0, 41, "B")),
            *(_fsync("bar.lock"), _two("rename", "bar.lock", "bar")),
        ),
        (_make("bar"), _write("bar", 0, 41, "o")),
    )


def others() -> tuple[Litmus, ...]:
    """Operations and orders that the bounds of B3's generator leave out."""
    grow = (_write("foo", OLD, NEW, "A"), _write("foo", OLD + NEW, NEW, "B"))
    folders = (_path("mkdir", "A"), _path("mkdir", "B"), _make("A/foo"))
    filled = (_make("foo"), _write("foo", 0, OLD, "o"))
    front = {"offset": 0, "bytes": 4096, "fill": "B"}
    return (
        Litmus(
            "symlink, fsync of its directory",
            (_two("symlink", "A/bar", "foo"), _fsync("A")),
            folders,
        ),
        Litmus("rmdir, fsync of its directory", (_path("rmdir", "B"), _fsync(".")), folders),
        _replaced_unflushed(),
        Litmus(
            "rename over a linked name, fsync of another",
            (_make("bar"), _path("mkdir", "A"), _two("link", "bar", "A/bar"), _fsync("A/bar"))
            + (_make("foo"), _two("rename", "foo", "bar"), _make("A/foo"), _fsync("A/foo")),
        ),
        Litmus(
            "one name twice, fsync below it",
            (_path("mkdir", "A"), _two("rename", "A", "B"), _path("mkdir", "A"))
            + (_make("A/foo"), _fsync("A/foo")),
        ),
        Litmus("truncate within a block", (_path("truncate", "foo", size=2500),), filled),
        Litmus(
            "append, fsync of another",
            (_write("foo", OLD, NEW, "A"), _make("bar"), _fsync("bar")),
            filled,
        ),
        Litmus("two appends, fdatasync", (*grow, _path("fdatasync", "foo")), filled),
        Litmus("two appends, fsync of another", (*grow, _make("bar"), _fsync("bar")), filled),
        Litmus(
            "a write behind a hole, fsync of another",
            (_write("foo", 40960, NEW, "A"), _make("bar"), _fsync("bar")),
            filled,
        ),
        Litmus(
            "an overwrite, fsync of another",
            (_write("foo", 0, OLD, "A"), _make("bar"), _fsync("bar")),
            filled,
        ),
        Litmus(
            "shorter, longer again, fsync of another",
            (_path("truncate", "foo", size=2500), _write("foo", 6000, 6288, "A"))
            + (_make("bar"), _fsync("bar")),
            filled,
        ),
        Litmus(
            "shorter, longer by truncate, fsync of another",
            (_path("truncate", "foo", size=2500), _path("truncate", "foo", size=NEW))
            + (_make("bar"), _fsync("bar")),
            filled,
        ),
        Litmus(
            "msync of the front, fsync of another",
            (_make("foo"), _write("foo", 0, NEW, "A"), _path("mmapwrite", "foo", **front))
            + (_make("bar"), _fsync("bar")),
        ),
        *(
            Litmus(
                f"{mode} in what was durable, fsync",
                (_path("fallocate", "foo", mode=mode, offset=1000, bytes=7000), _fsync("foo")),
                filled,
            )
            for mode in ("zero,keep", "punch,keep")
        ),
        *(
            Litmus(
                f"{title}, shorter, fsync of another",
                (_write("foo", 0, OLD, "A"), _path("truncate", "foo", size=2500))
                + (_make("bar"), _fsync("bar")),
                before,
            )
            for title, before in (("written", (_make("foo"),)), ("overwritten", filled))
        ),
        Litmus(
            "rename across directories, fsync of the old one",
            (_two("rename", "A/foo", "B/foo"), _fsync("A")),
            folders,
        ),
        Litmus(
            "rename across directories, fsync of the new one",
            (_two("rename", "A/foo", "B/foo"), _fsync("B")),
            folders,
        ),
        Litmus(
            "write, rename without fsync, fsync of another",
            (_make("foo.new"), _write("foo.new", 0, NEW, "A"))
            + (_two("rename", "foo.new", "foo"), _make("bar"), _fsync("bar")),
            filled,
        ),
    )


def _replaced_unflushed() -> Litmus:
    """The directory is never flushed: on btrfs the old file loses its name, and the new one has not
    got it (found by B3)."""
    return Litmus(
        "replace what was flushed by what was not, fsync of another",
        (_make("bar"), _write("bar", 0, OLD, "A"), _fsync("bar"), _make("foo"))
        + (_write("foo", 0, NEW, "B"), _two("rename", "foo", "bar"), _make("other"))
        + (_fsync("other"),),
    )


def _path(do: str, path: str, **more: object) -> Operation:
    return {"do": do, "path": path, **more}


def _two(do: str, path: str, to: str) -> Operation:
    return _path(do, path, to=to)


def _make(path: str) -> Operation:
    return _path("creat", path)


def _fsync(path: str) -> Operation:
    return _path("fsync", path)


def _write(path: str, offset: int, length: int, fill: str) -> Operation:
    return _path("write", path, offset=offset, bytes=length, fill=fill)
