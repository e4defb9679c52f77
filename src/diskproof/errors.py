"""The error tree: every error a user can cause says what, why and what to do."""

import errno
import os
from enum import IntEnum

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Exit(IntEnum):
    """Exit codes of the command line (a contract)."""

    OK = 0
    FELL_SHORT = 1
    USAGE = 2
    HOST = 3
    INTERRUPTED = 130


class DiskproofError(Exception):
    """An error with a way out: one line each for what, why and hint."""

    exit_code = Exit.FELL_SHORT

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.hint) if line)


class UsageError(DiskproofError):
    """The command line, a store or a foreign file is not what it should be."""

    exit_code = Exit.USAGE


class StudyError(UsageError):
    """The study file is wrong; ``what`` starts with ``FILE:LINE:`` where the line is known."""


class HostError(DiskproofError):
    """This host cannot do what is asked; the hint names the package or setting that brings it."""

    exit_code = Exit.HOST


class NotHere(HostError):
    """What this host has not at all: a plan leaves out what needs it, and says why."""


class RunFailure(DiskproofError):
    """One run failed; stored as a result, the matrix goes on.

    ``kind`` is one word for tables: ``tool``, ``timeout``, ``mismatch``, ``cache``,
    ``space``, ``guest``, ``qemu``, ``workload``, ``killed``. ``evidence`` is (name, content) of
    what must be kept with the failed run: fio's output, a console.
    """

    def __init__(
        self,
        kind: str,
        what: str,
        why: str = "",
        hint: str = "",
        evidence: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        super().__init__(what, why, hint)
        self.kind = kind
        self.evidence = evidence


def tells_no_space(text: str) -> bool:
    """Whether a program says that its disk, or its share of one, is full."""
    return any(os.strerror(number) in text for number in NO_SPACE)
