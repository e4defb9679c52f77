"""What a litmus program has made so far, so that each of its operations finds what it needs."""

from dataclasses import dataclass, field
from itertools import count

from support.litmus.operations import Operation

DIRECTORIES = ("A", "B")
FILLED = 12288
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ATTRIBUTE = "user.litmus"


@dataclass
class _File:
    size: int = 0
    attribute: bool = False


@dataclass
class Names:
    """``done`` grows by what is asked for, and by what that needs."""

    done: list[Operation] = field(default_factory=list)
    _files: dict[str, _File] = field(default_factory=dict)
    _directories: set[str] = field(default_factory=lambda: {"."})
    _writes: "count[int]" = field(default_factory=count)

    def size(self, name: str) -> int:
        return self._files[name].size

    def need(self, name: str) -> None:
        """The name is there, whatever it is of."""
        if name not in self._files and name not in self._directories:
            self.make(name)

    def make(self, name: str) -> None:
        """A new directory or empty file."""
        if name in DIRECTORIES:
            self.done.append({"do": "mkdir", "path": name})
            self._directories.add(name)
            return
        self._need_parent(name)
        self.done.append({"do": "creat", "path": name})
        self._files[name] = _File()

    def without(self, name: str) -> None:
        """The name is free; a directory goes with what is in it."""
        for inner in sorted(each for each in self._files if each.startswith(name + "/")):
            self._unlink(inner)
        if name in self._directories:
            self.done.append({"do": "rmdir", "path": name})
            self._directories.remove(name)
        elif name in self._files:
            self._unlink(name)

    def fill(self, name: str) -> None:
        """The file has content to be changed."""
        self.need(name)
        if self.size(name) < FILLED:
            offset = self.size(name)
            change = {"do": "write", "path": name, "offset": offset, "bytes": FILLED - offset}
            self.write(change)

    def write(self, change: Operation) -> None:
        """A write with a letter that no other has."""
        self.change({**change, "fill": _LETTERS[next(self._writes)]})

    def change(self, change: Operation) -> None:
        """Data or size of a file that is there."""
        self.done.append(change)
        changed = self._files[change["path"]]
        if change["do"] == "truncate":
            changed.size = change["size"]
        elif "keep" not in change.get("mode", ""):
            changed.size = max(changed.size, change["offset"] + change["bytes"])

    def connect(self, do: str, old: str, new: str) -> None:
        """``link`` or ``rename``; a file's rename replaces what has the name."""
        self.need(old)
        if do == "link" or new in DIRECTORIES:
            self.without(new)
        self._need_parent(new)
        self.done.append({"do": do, "path": old, "to": new})
        if old in DIRECTORIES:
            self._move(old, new)
        elif do == "link":
            self._files[new] = self._files[old]
        elif self._files.get(new) is not self._files[old]:  # else rename(2) does nothing
            self._files[new] = self._files.pop(old)

    def attribute(self, do: str, name: str) -> None:
        """``setxattr`` or ``removexattr``; what is removed is there before."""
        held = self._files[name]
        if do == "setxattr" or not held.attribute:
            value = "B" if held.attribute else "A"
            words = {"path": name, "name": ATTRIBUTE, "value": value * 40}
            self.done.append({"do": "setxattr", **words})
        held.attribute = do == "setxattr"
        if do == "removexattr":
            self.done.append({"do": do, "path": name, "name": ATTRIBUTE})

    def _need_parent(self, name: str) -> None:
        folder = name.rpartition("/")[0]
        if folder:
            self.need(folder)

    def _unlink(self, name: str) -> None:
        self.done.append({"do": "unlink", "path": name})
        del self._files[name]

    def _move(self, old: str, new: str) -> None:
        self._directories.remove(old)
        self._directories.add(new)
        for name in [each for each in self._files if each.startswith(old + "/")]:
            self._files[new + name.removeprefix(old)] = self._files.pop(name)
