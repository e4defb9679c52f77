"""A Linux md array of the study's own, over loop devices on a place, or over named devices.

It is made with --assume-clean: a resync would run into the first measurements. Files are new and
hold zeroes, of which mirrors and parity are right. On named devices they are not: what has not
been written differs between mirrors, and parity is wrong until a stripe is written as a whole. No
member fails in a study, so nothing ever reads it.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from diskproof.backings import volumes
from diskproof.backings.device import require_unused
from diskproof.backings.loop import start_loop
from diskproof.backings.place import Place, choose_size, start_run_dir
from diskproof.errors import HostError, RunFailure
from diskproof.process.start import require_tool, run
from diskproof.records import BackingSpec
from diskproof.units import render_bytes

OFFSET = 8 << 20
"""Where data starts on a member: superblock and bitmap lie before it."""
_NEW = Path("/sys/module/md_mod/parameters/new_array")
_LEAST = {"0": 2, "1": 2, "5": 3, "10": 2}


class MdBacking:
    """``kind = "md"``: ``level``, ``members``, ``size``, ``chunk``, ``bitmap``, or ``path``."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        check_shape(spec, base)
        require_md()
        named = [require_unused(Path(path)) for path in spec.option("path").split()]
        with ExitStack() as stack:
            note = stack.enter_context(volumes.start_note(base))
            members, free, where = named, None, " ".join(map(str, named))
            below: tuple[Path, ...] = ()
            if not named:
                below = make_members(stack.enter_context(start_run_dir(base)), spec, base)
                loops = [stack.enter_context(start_loop(file)) for file in below]
                members, where = [loop.path for loop in loops], f"{len(loops)} x {loops[0].words}"
                free = base.free_bytes() * data_members(spec) // len(loops)
            array = stack.enter_context(start_array(note, spec, members, stay=bool(named)))
            name = f"md level {spec.option('level')} {describe(array)}on {where}"
            yield Place(
                base.folder, device=array, name=name, below=below, base_free=free, lowest=base.home
            )


BACKING = MdBacking()


def member_count(spec: BackingSpec) -> int:
    return len(spec.option("path").split()) or int(spec.option("members"))


def data_members(spec: BackingSpec) -> int:
    """How many members hold what fits into the array; the others hold it again, or parity."""
    count = member_count(spec)
    return {"0": count, "1": 1, "5": count - 1, "10": max(1, count // 2)}[spec.option("level")]


def check_shape(spec: BackingSpec, base: Place) -> None:
    """Raises HostError for what cannot be an array."""
    level, paths = spec.option("level"), spec.option("path").split()
    where = f"[backings.{spec.name}]"
    if member_count(spec) < _LEAST[level]:
        why = f"it has {member_count(spec)} members, level {level} needs {_LEAST[level]}"
        raise HostError(f"backing {spec.name} is no array", why, f"give more in {where}")
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise HostError(f"backing {spec.name} is no array", "a device is named twice")
    if base.device and not paths:
        raise HostError(
            f"backing {spec.name} cannot be made on {base.device}",
            "the members of an array are files or several devices",
            f"name devices with path in {where}, or make it on a directory",
        )
    if int(spec.option("chunk")) % 1024:
        raise HostError(f"backing {spec.name} is no array", "chunks are whole KiB")
    if level == "0" and spec.option("bitmap") != "none":
        raise HostError(f"backing {spec.name} is no array", "level 0 has no bitmap")


def require_md() -> None:
    """Raises HostError where mdadm or the kernel's part of it is missing."""
    require_tool("mdadm", "mdadm")
    if not _NEW.exists() and os.geteuid() == 0:
        run(["modprobe", "--quiet", "md_mod"], timeout=30, check=False)
    if not _NEW.exists() or (os.geteuid() == 0 and not os.access(_NEW, os.W_OK)):
        hint = "boot a kernel that has it (apt-get install linux-image-amd64)"
        raise HostError("there is no md here", "no md_mod in the kernel, or a read-only /sys", hint)


def make_members(room: Path, spec: BackingSpec, base: Place) -> tuple[Path, ...]:
    """Sparse files for the members."""
    count, data = member_count(spec), data_members(spec)
    step = data * max(1 << 20, int(spec.option("chunk")))
    size = choose_size(spec, base, partial(_needed, count, data), step)
    files = tuple(room / f"member{number}.img" for number in range(count))
    for file in files:
        with file.open("xb") as stream:
            os.truncate(stream.fileno(), size // data + OFFSET)
    return files


def _needed(count: int, data: int, size: int) -> int:
    return count * (size // data + OFFSET)


@contextmanager
def start_array(
    note: Path, spec: BackingSpec, members: list[Path], *, stay: bool
) -> Iterator[Path]:
    """An array of our own, noted in a folder before it is made; ``stay``: its members outlive it,
    so that they are wiped. Raises HostError with mdadm's words."""
    name, devices = volumes.new_name(), tuple(path.resolve() for path in members)
    volumes.write_note(note, volumes.Volume("md", name, devices if stay else ()))
    try:
        # By a number, an array that is gone comes again, empty, when somebody opens it meanwhile.
        (config := note / "mdadm.conf").write_text("CREATE names=yes\n")
        args = create_args(name, spec, devices)
        done = volumes.run_quietly(["mdadm", *args, f"--config={config}"])
        if done.returncode != 0:
            told = "\n".join(done.error_text.splitlines()[-5:])
            raise HostError(f"mdadm cannot make the array of backing {spec.name}", told)
        array = Path(f"/dev/md_{name}")
        _require_idle(array)
        yield array
    finally:
        if left := remove_array(name, devices if stay else ()):
            raise RunFailure("tool", f"array {name} could not be removed", left)


def create_args(name: str, spec: BackingSpec, members: tuple[Path, ...]) -> list[str]:
    level = spec.option("level")
    chunk = [] if level == "1" else [f"--chunk={int(spec.option('chunk')) >> 10}K"]
    redundant = ["--assume-clean", f"--bitmap={spec.option('bitmap')}"] if level != "0" else []
    return [
        *("--create", f"/dev/md/{name}", "--run", "--metadata=1.2", "--homehost=none"),
        *(f"--name={name}", f"--level={level}", f"--raid-devices={len(members)}"),
        *(f"--data-offset={OFFSET >> 10}K", *chunk, *redundant, *map(str, members)),
    ]


def _require_idle(array: Path) -> None:
    try:
        action = (volumes.SYS / array.name / "md/sync_action").read_text().strip()
    except FileNotFoundError:  # level 0
        return
    if action != "idle":
        raise HostError(f"{array} is not at rest", f"the kernel says: {action}")


def describe(array: Path) -> str:
    """Chunks and bitmap, as the kernel tells them."""
    chunk = int((volumes.SYS / array.name / "md/chunk_size").read_text())
    try:
        policy = (volumes.SYS / array.name / "md/consistency_policy").read_text().strip()
    except FileNotFoundError:
        policy = ""
    told = [f"chunks of {render_bytes(chunk)}"] if chunk else []
    told += ["with a bitmap"] if policy == "bitmap" else []
    return f"({', '.join(told)}) " if told else ""


def remove_array(name: str, members: tuple[Path, ...]) -> str:
    """Take away an array of ours, and its superblocks on members that stay. Gives why something
    is still there, or nothing."""
    left = volumes.take_down(volumes.find_standing_on([f"md_{name}"]))
    for member in members if not left else ():
        if member.is_block_device() and read_array_name(member) == name:
            done = volumes.run_quietly(["mdadm", "--zero-superblock", str(member)])
            left = left or ("" if done.returncode == 0 else done.error_text)
    Path(f"/dev/md/{name}").unlink(missing_ok=True)
    return left


def read_array_name(member: Path) -> str:
    """The name of the array in a member's superblock, or nothing."""
    told = volumes.run_quietly(["mdadm", "--examine", "--export", str(member)]).text.splitlines()
    names = [line.partition("=")[2] for line in told if line.startswith("MD_NAME=")]
    return names[0].rpartition(":")[2] if names else ""
