"""Reading crash logs and replaying them in memory, for the tests: short, unchecked, by the page."""

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KINDS = [
    *("base", "create", "mkdir", "symlink", "link", "unlink", "rmdir", "rename", "write"),
    *("truncate", "fallocate", "fsync", "setattr", "setxattr", "removexattr", "open", "release"),
    *("acknowledge", "note", "end", "caller", "stack", "module", "line", "sync"),
]
FRAME = struct.Struct("<IIIBBHQQQII")
DIRECT, DSYNC, SYNC, MAPPED, DATA_ONLY, DIRECTORY = (1 << bit for bit in range(6))
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
RENAME_EXCHANGE = 2
BLOCK = 4096  # of the file systems that tests run on


Caller = tuple[int, int, str]  # process, thread, name


@dataclass(frozen=True)
class Record:
    """A record with its payload as it is."""

    kind: str
    flags: int
    error: int
    begin_ns: int
    end_ns: int
    file: int
    payload: bytes
    by: Caller | None = None

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack_from("<" + form, self.payload)

    def names(self, at: int) -> list[str]:
        """The names from this place of the payload on; what is left of it may be no name."""
        found = []
        while at < len(self.payload) and not (found and self.kind in (*KINDS[:4], "setxattr")):
            (length,) = struct.unpack_from("<H", self.payload, at)
            found.append(os.fsdecode(self.payload[at + 2 : at + 2 + length]))
            at += 2 + length
        return found

    @property
    def text(self) -> str:
        return self.payload.decode()


def read_log(path: Path) -> list[Record]:
    """All whole records of a log but those about callers; checks checksums and sequence."""
    return list(_records(path.read_bytes()))


def _records(log: bytes) -> Iterator[Record]:
    assert log[:12] == b"dpcrash\n\x02\0\0\0"
    at, last = 64, 0
    callers: dict[int, Caller] = {}
    while at + FRAME.size <= len(log):
        head, tail, length, kind, flags, error, sequence, begin, end, file, caller = (
            FRAME.unpack_from(log, at)
        )
        if at + FRAME.size + length > len(log):
            return
        payload = log[at + FRAME.size : at + FRAME.size + length]
        assert zlib.crc32(log[at + 4 : at + FRAME.size]) == head
        assert zlib.crc32(payload) == tail
        assert sequence == last + 1
        if KINDS[kind - 1] == "caller":
            assert caller not in callers
            callers[caller] = (*struct.unpack_from("<II", payload), payload[8:].decode())
        elif KINDS[kind - 1] not in ("stack", "module", "line"):
            by = callers[caller] if caller else None
            yield Record(KINDS[kind - 1], flags, error, begin, end, file, payload, by)
        at, last = at + FRAME.size + length + -length % 8, sequence


@dataclass
class Node:
    """A file in memory; ``entries`` of a directory, ``content`` of a file, target of a link.

    ``filled`` are the blocks that hold data; all others must be holes.
    """

    mode: int
    uid: int
    gid: int
    rdev: int = 0
    content: bytearray = field(default_factory=bytearray)
    entries: dict[str, int] = field(default_factory=dict)
    extended: dict[str, bytes] = field(default_factory=dict)
    filled: set[int] = field(default_factory=set)
    identity: int = 0  # the same for all names of one file

    def fill(self, start: int, end: int) -> None:
        self.filled.update(range(start // BLOCK, -(-end // BLOCK)))

    def clear(self, start: int, end: int) -> None:
        self.filled.difference_update(range(-(-start // BLOCK), end // BLOCK))


def replay(records: list[Record], base: Path) -> dict[str, Node]:
    """What the log says the backing holds, by path; ``base`` is its copy from before."""
    nodes: dict[int, Node] = {}
    for record in records:
        if not record.error and (apply := _APPLY.get(record.kind)):
            apply(nodes, record)
        if record.kind == "base":
            _take_base(nodes[record.file], _path_of(nodes, record.file, base))
    return dict(_walk(nodes, 1, ""))


def _take_base(node: Node, path: Path) -> None:
    node.extended = read_extended(path)
    if stat.S_ISREG(node.mode):
        node.content[:] = path.read_bytes()
        node.fill(0, len(node.content))


def read_extended(path: Path) -> dict[str, bytes]:
    """All attributes but those that only the host's own rules set."""
    names = os.listxattr(path, follow_symlinks=False)
    kept = (name for name in names if name != "security.selinux")
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in kept}


def _path_of(nodes: dict[int, Node], file: int, base: Path) -> Path:
    for parent, node in nodes.items():
        for name, child in node.entries.items():
            if child == file:
                return _path_of(nodes, parent, base) / name
    return base


def _walk(nodes: dict[int, Node], file: int, path: str) -> Iterator[tuple[str, Node]]:
    yield path, nodes[file]
    for name, child in nodes[file].entries.items():
        yield from _walk(nodes, child, f"{path}/{name}")


def _enter(nodes: dict[int, Node], record: Record) -> None:
    parent, mode, uid, gid, rdev, _size = record.numbers("QIIIIQ")
    (name,) = record.names(32)
    target = record.payload[32 + 2 + len(os.fsencode(name)) :]
    if record.file not in nodes:  # else one more name in the base
        nodes[record.file] = Node(mode, uid, gid, rdev, bytearray(target), identity=record.file)
    if parent:
        nodes[parent].entries[name] = record.file


def _link(nodes: dict[int, Node], record: Record) -> None:
    nodes[record.numbers("Q")[0]].entries[record.names(8)[0]] = record.file


def _unlink(nodes: dict[int, Node], record: Record) -> None:
    assert nodes[record.numbers("Q")[0]].entries.pop(record.names(8)[0]) == record.file


def _rename(nodes: dict[int, Node], record: Record) -> None:
    flags, parent, new_parent, replaced = record.numbers("IQQQ")
    name, new_name = record.names(28)
    old, new = nodes[parent].entries, nodes[new_parent].entries
    assert new.get(new_name, 0) == replaced
    if replaced == record.file:
        return
    assert old.pop(name) == record.file
    new[new_name] = record.file
    if flags & RENAME_EXCHANGE:
        old[name] = replaced


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _write(nodes: dict[int, Node], record: Record) -> None:
    (offset,), data = record.numbers("Q"), record.payload[8:]
    content = nodes[record.file].content
    if data:
        _resize(content, max(len(content), offset + len(data)))
        content[offset : offset + len(data)] = data
        nodes[record.file].fill(offset, offset + len(data))


def _truncate(nodes: dict[int, Node], record: Record) -> None:
    (size,) = record.numbers("Q")
    _resize(nodes[record.file].content, size)
    nodes[record.file].filled = {at for at in nodes[record.file].filled if at * BLOCK < size}


def _fallocate(nodes: dict[int, Node], record: Record) -> None:
    mode, offset, length = record.numbers("IQQ")
    content = nodes[record.file].content
    if not mode & KEEP_SIZE:
        _resize(content, max(len(content), offset + length))
    if mode & (PUNCH_HOLE | ZERO_RANGE):
        end = min(offset + length, len(content))
        content[offset:end] = bytes(max(0, end - offset))
    if mode & PUNCH_HOLE:
        nodes[record.file].clear(offset, offset + length)
    else:
        nodes[record.file].fill(offset, offset + length)


def _setattr(nodes: dict[int, Node], record: Record) -> None:
    mask, mode, uid, gid = record.numbers("IIII")
    node = nodes[record.file]
    node.mode = stat.S_IFMT(node.mode) | mode if mask & 1 else node.mode
    node.uid = uid if mask & 2 else node.uid
    node.gid = gid if mask & 4 else node.gid


def _setxattr(nodes: dict[int, Node], record: Record) -> None:
    (name,) = record.names(0)[:1]
    nodes[record.file].extended[name] = record.payload[2 + len(os.fsencode(name)) :]


def _removexattr(nodes: dict[int, Node], record: Record) -> None:
    del nodes[record.file].extended[record.names(0)[0]]


_APPLY = {
    **dict.fromkeys(KINDS[:4], _enter),
    "link": _link,
    "unlink": _unlink,
    "rmdir": _unlink,
    "rename": _rename,
    "write": _write,
    "truncate": _truncate,
    "fallocate": _fallocate,
    "setattr": _setattr,
    "setxattr": _setxattr,
    "removexattr": _removexattr,
}


def read_tree(top: Path) -> dict[str, Node]:
    """The same of a real directory."""
    found = {}
    for path in (top, *top.rglob("*")):
        facts = path.lstat()
        content = b""
        if stat.S_ISREG(facts.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(facts.st_mode):
            content = os.fsencode(path.readlink())
        node = Node(facts.st_mode, facts.st_uid, facts.st_gid, facts.st_rdev, bytearray(content))
        node.extended, node.identity = read_extended(path), facts.st_ino
        if stat.S_ISREG(facts.st_mode):
            for start, end in _data_ranges(path, facts.st_size):
                node.fill(start, end)
        found[str(path)[len(str(top)) :]] = node
    return found


def _data_ranges(path: Path, size: int) -> Iterator[tuple[int, int]]:
    with path.open("rb") as file:
        at = 0
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            yield start, at


def _same_files(nodes: dict[str, Node]) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for path, node in sorted(nodes.items()):
        names.setdefault(node.identity, []).append(path)
    return sorted(names.values())


def check_same(replayed: dict[str, Node], real: dict[str, Node]) -> None:
    """Fails at the first path that differs."""
    assert sorted(replayed) == sorted(real)
    for path, node in replayed.items():
        other = real[path]
        assert (oct(node.mode), node.uid, node.gid) == (oct(other.mode), other.uid, other.gid), path
        assert node.rdev == other.rdev, path
        assert node.content == other.content, path
        assert node.extended == other.extended, path
        assert other.filled <= node.filled, f"{path} has data where the log has a hole"
    assert _same_files(replayed) == _same_files(real)


def check_acks_follow_flushes(records: list[Record]) -> None:
    """Of 20 commits: between two that are acknowledged stands a write that a later flush covers."""
    acks = [at for at, record in enumerate(records) if record.kind == "acknowledge"]
    assert [records[at].text for at in acks] == [str(number) for number in range(20)]
    for before, after in zip(acks, acks[1:], strict=False):
        commit = records[before + 1 : after]
        writes = [record for record in commit if record.kind == "write"]
        flushes = [record for record in commit if record.kind == "fsync"]
        assert any(w.end_ns <= f.begin_ns for w in writes for f in flushes if w.file == f.file)
