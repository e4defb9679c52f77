"""Runs one verb of a tree and notes through which files a value goes.

Started as a program: ``walk.py SRC OUT VALUE VERB...``. A file counts when one of its functions has
the value in its hands, as an argument, a variable or what it returns: the value itself; a list or
mapping that has it as a member, or a list of pairs of which it is the second half; a record of
ours that has it as a field. Containers of those (a cell, a study, a run) do not count, for who
hands them on does not look at the value. What happens at import is left out.
"""

import importlib
import json
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import FrameType

_LARGEST = 200
_LIBRARIES = ("jinja2", "numpy", "pydantic.fields", "qemu.qmp", "rich.live", "scipy.stats",
              "sqlalchemy.dialects.sqlite", "sqlalchemy.orm", "typer.main", "yaml")  # fmt: skip


class Watch:
    """Notes files by function: ``{"plan/rules.py": {"_aio_needs_direct": "levels"}}``."""

    def __init__(self, package: str, value: str) -> None:
        self.package, self.value = package, value
        self.found: dict[str, dict[str, str]] = {}

    def __call__(self, frame: FrameType, event: str, returned: object) -> None:
        code = frame.f_code
        if event != "return" or code.co_name == "<module>":
            return
        if code.co_filename.startswith(self.package):
            for name, value in [*frame.f_locals.items(), ("return", returned)]:
                if self.holds(value):
                    place = self.found.setdefault(code.co_filename[len(self.package) :], {})
                    place.setdefault(code.co_qualname, name)

    def holds(self, value: object) -> bool:
        if isinstance(value, str):
            return value == self.value
        if isinstance(value, tuple | list | set | frozenset):
            return self._is_among(value)
        if isinstance(value, dict):
            return self._is_among(value.values())
        if type(value).__module__.startswith("diskproof"):
            return self._is_among(getattr(value, "__dict__", {}).values(), pairs=False)
        return False

    def _is_among(self, values: Collection[object], pairs: bool = True) -> bool:
        return len(values) < _LARGEST and any(
            (type(each) is str and each == self.value)
            or (pairs and type(each) is tuple and len(each) == 2 and each[1] == self.value)
            for each in list(values)
        )


def main(source: str, out: str, value: str, *verb: str) -> int:
    sys.path.insert(0, source)
    for library in _LIBRARIES:  # watched, their import would take most of the time
        with suppress(ImportError):
            importlib.import_module(library)
    from diskproof.__main__ import main as diskproof

    watch = Watch(f"{source}/diskproof/", value)
    sys.argv = ["diskproof", *verb]
    threading.setprofile(watch)
    sys.setprofile(watch)
    code = 0
    try:
        diskproof()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    Path(out).write_text(json.dumps(watch.found))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
