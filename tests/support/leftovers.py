"""What a failed test leaves running is ended, or those after it would fail too: many look whether
anything runs that should not."""

from contextlib import suppress
from pathlib import Path

import psutil

from support.forked import forker_pid


def find_children() -> set[int]:
    """Numbers of our children; one read for each thread of ours."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended, a kernel without CONFIG_PROC_CHILDREN
            found.update(int(word) for word in (task / "children").read_text().split())
    return found


def end_children(but: set[int]) -> None:
    """Kill all other children of ours with their descendants; returns when they are gone. What the
    module's calls fork from stays: begun anew, it would be taken for left behind."""
    ended: list[psutil.Process] = []
    for pid in find_children() - but - {forker_pid()}:
        with suppress(psutil.Error):
            child = psutil.Process(pid)
            ended += [child, *child.children(recursive=True)]
    for process in ended:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(ended, timeout=20)
