"""What a program may do, as the kernel says while it runs."""

from dataclasses import dataclass

RUN_USER = "a run's own"


@dataclass(frozen=True, order=True)
class Walls:
    """One program as it was seen last. ``capabilities`` it has, ``attainable`` are those that it
    could get (its bounding set, unless ``no_new_privs``). ``files`` is whether Landlock keeps it to
    a few: our own program says so in its environment when it has tried. ``namespaces`` are those
    that are not ours; ``memory`` bounds its data in bytes, for good, None: nothing does; ``core`` a
    core file."""

    program: str
    user: str
    capabilities: tuple[str, ...]
    attainable: tuple[str, ...]
    no_new_privs: bool
    seccomp: str
    files: bool
    namespaces: tuple[str, ...]
    memory: int | None
    core: int | None
