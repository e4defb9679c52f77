"""nocache beside no wrapper and beside Debian's: time, victims, peak, small files, start-up.

The peer is Debian's package ``nocache``, installed by hand. Everything runs in turns; medians are
printed; exits with 1 when a bar of ours is missed. --cache limits the page cache of all loads by
a memory cgroup (first version, root) of their own, so that a victim file can be pushed out by a
tree of twice that size. Files are on --folder, which must be on a disk. The kernel's own reading
ahead counts in the peak: twice the device's read_ahead_kb, whatever the wrapper does.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import find_tool
from support.residency import PAGE, count_pages, evict

MIB = 1 << 20
LEAST_SPEED = 0.95
MOST_CACHED = 16 * MIB
MOST_SMALL_TIME = 1.2
MOST_START_SECONDS = 0.0002
LEAST_VICTIM = 0.99


@dataclass(frozen=True)
class Wrapper:
    """What a load is run under."""

    name: str
    prefix: tuple[str, ...]
    ours: bool = False


def find_wrappers() -> list[Wrapper]:
    found = [
        Wrapper("plain", ()),
        Wrapper("diskproof", (str(require_native("diskproof-nocache")), "--"), ours=True),
    ]
    if peer := find_tool("nocache"):
        return [*found, Wrapper("nocache", (peer,))]
    print("Debian's nocache is not installed: nothing to compare with")
    return found


def timed(wrapper: Wrapper, argv: Sequence[str | Path], env: dict[str, str] | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(
        [*wrapper.prefix, *map(str, argv)],
        check=True,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


class Sampler(threading.Thread):
    """The most pages of a file in the cache, looked at from outside all the time."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.peak, self.ended = file, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.0005):
            self.peak = max(self.peak, count_pages(self.file).cached * PAGE)


def measure_peak(wrapper: Wrapper, argv: Sequence[str | Path], file: Path) -> int:
    evict(file)
    sampler = Sampler(file)
    sampler.start()
    try:
        timed(wrapper, argv)
    finally:
        sampler.ended.set()
        sampler.join()
    return sampler.peak


def settle(*files: Path) -> None:
    """Nothing of the load is in the cache, nothing is on its way to the disk."""
    os.sync()
    for file in files:
        if file.exists():
            evict(file)


def compare_reading(wrappers: list[Wrapper], folder: Path, options: argparse.Namespace) -> bool:
    """One large file: time in turns, then its peak in the cache."""
    file = folder / "large"
    fill(file, options.size)
    held = True
    loads = {"cat": ["cat", f"{file}"], "dd bs=1M": ["dd", f"if={file}", "of=/dev/null", "bs=1M"]}
    for name, argv in loads.items():
        times: dict[str, list[float]] = {wrapper.name: [] for wrapper in wrappers}
        for turn in range(options.turns):
            for wrapper in in_turn(wrappers, turn):
                settle(file)
                times[wrapper.name].append(timed(wrapper, argv))
        plain = statistics.median(times["plain"])
        for wrapper in wrappers:
            peaks = [measure_peak(wrapper, argv, file) for _ in range(3)]
            speed = plain / statistics.median(times[wrapper.name])
            ok = not wrapper.ours or (speed >= LEAST_SPEED and max(peaks) <= MOST_CACHED)
            held &= ok
            row(f"read {options.size} MiB, {name}", wrapper, times[wrapper.name],
                f"speed {speed:5.2f}  peak {max(peaks) / MIB:6.1f} MiB", ok)  # fmt: skip
    file.unlink()
    return held


def in_turn(wrappers: list[Wrapper], turn: int) -> list[Wrapper]:
    shift = turn % len(wrappers)
    return wrappers[shift:] + wrappers[:shift]


def row(load: str, wrapper: Wrapper, times: list[float], more: str, ok: bool) -> None:
    middle = statistics.median(times) * 1e3
    verdict = "" if not wrapper.ours else "ok" if ok else "MISSED"
    print(f"{load:28} {wrapper.name:10} {middle:10.2f} ms  {more}  {verdict}", flush=True)


def fill(file: Path, mebibytes: int) -> None:
    block = os.urandom(MIB)
    with file.open("wb") as output:
        for number in range(mebibytes):
            output.write(number.to_bytes(8, "little") + block[8:])


def compare_small(wrappers: list[Wrapper], folder: Path, options: argparse.Namespace) -> bool:
    """500 files of 4 to 12 KiB, copied."""
    source, target = folder / "small", folder / "copies"
    source.mkdir()
    for number in range(500):
        (source / str(number)).write_bytes(os.urandom(4096 + 16 * number))
    times: dict[str, list[float]] = {wrapper.name: [] for wrapper in wrappers}
    for turn in range(3 * options.turns):
        for wrapper in in_turn(wrappers, turn):
            shutil.rmtree(target, ignore_errors=True)
            settle()
            times[wrapper.name].append(timed(wrapper, ["cp", "-r", str(source), str(target)]))
    shutil.rmtree(source)
    shutil.rmtree(target)
    return judge_small(wrappers, times)


def judge_small(wrappers: list[Wrapper], times: dict[str, list[float]]) -> bool:
    held = True
    plain = statistics.median(times["plain"])
    for wrapper in wrappers:
        ratio = statistics.median(times[wrapper.name]) / plain
        ok = not wrapper.ours or ratio <= MOST_SMALL_TIME
        held &= ok
        row("copy 500 small files", wrapper, times[wrapper.name], f"{ratio:5.2f} x plain", ok)
    return held


def find_limits() -> list[int]:
    """Descriptors; a million only for those who may have so many."""
    wanted = (1024, 20_000, 1_000_000)
    allowed = [limit for limit in wanted if may_have(limit)]
    print(f"limits of descriptors that are allowed here: {allowed} of {list(wanted)}")
    return allowed


def may_have(limit: int) -> bool:
    argv = ["prlimit", f"--nofile={limit}", "true"]
    return subprocess.run(argv, stderr=subprocess.DEVNULL, check=False).returncode == 0


def compare_starts(wrappers: list[Wrapper], folder: Path, options: argparse.Namespace) -> bool:
    """A program started again and again inside, at two limits of descriptors."""
    loop = "i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i+1)); done"
    held = True
    for limit in find_limits():
        times: dict[str, list[float]] = {wrapper.name: [] for wrapper in wrappers}
        firsts: dict[str, list[float]] = {wrapper.name: [] for wrapper in wrappers}
        for turn in range(options.turns):
            for wrapper in in_turn(wrappers, turn):
                limited = Wrapper(wrapper.name, ("prlimit", f"--nofile={limit}", *wrapper.prefix))
                times[wrapper.name].append(timed(limited, ["sh", "-c", loop]) / 50)
                firsts[wrapper.name].append(timed(limited, ["true"]))
        plain, first = statistics.median(times["plain"]), statistics.median(firsts["plain"])
        for wrapper in wrappers:
            added = statistics.median(times[wrapper.name]) - plain
            whole = statistics.median(firsts[wrapper.name]) - first
            ok = not wrapper.ours or added <= MOST_START_SECONDS
            held &= ok
            row(f"exec, ulimit -n {limit}", wrapper, times[wrapper.name],
                f"+{added * 1e3:6.3f} ms each, +{whole * 1e3:6.2f} ms once", ok)  # fmt: skip
    return held


@contextmanager
def limited_cache(mebibytes: int) -> Iterator[Path | None]:
    """A memory cgroup (first version) that we move into; None where there is none."""
    home = Path("/sys/fs/cgroup/memory")
    group = home / f"nocache-benchmark-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        print(f"victims are not measured: {error}")
        yield None
        return
    try:
        (group / "memory.limit_in_bytes").write_text(f"{mebibytes}M")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield group
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        (group / "memory.force_empty").write_text("0")
        remove_group(group)


def remove_group(group: Path) -> None:
    """Once the last background process has left it."""
    for _ in range(300):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.1)
    print(f"{group} could not be removed")


def compare_trees(wrappers: list[Wrapper], folder: Path, options: argparse.Namespace) -> bool:
    """cp and tar of a tree of twice the cache: time until it is on the disk, the victim's pages."""
    tree, victim = folder / "tree", folder / "victim"
    make_tree(tree, 2 * options.cache)
    fill(victim, options.cache // 4)
    held = True
    copy = str(folder / "copy")
    loads = {
        "cp": ["cp", "-r", str(tree), copy],
        "tar": ["tar", "cf", copy, "-C", str(folder), "tree"],
    }
    for name, argv in loads.items():
        times: dict[str, list[float]] = {wrapper.name: [] for wrapper in wrappers}
        kept: dict[str, list[float]] = {wrapper.name: [] for wrapper in wrappers}
        for turn in range(options.turns):
            for wrapper in in_turn(wrappers, turn):
                seconds, share = measure_tree(wrapper, argv, folder, options.cache)
                times[wrapper.name].append(seconds)
                kept[wrapper.name].append(share)
        for wrapper in wrappers:
            share = min(kept[wrapper.name])
            ok = not wrapper.ours or share >= LEAST_VICTIM
            held &= ok
            row(f"{name} of {2 * options.cache} MiB, synced", wrapper, times[wrapper.name],
                f"victim keeps {share:6.1%}", ok)  # fmt: skip
    return held


def make_tree(tree: Path, mebibytes: int) -> None:
    """Half in files of 16 MiB, half in files of 1 MiB."""
    (tree / "many").mkdir(parents=True)
    for number in range(mebibytes // 32):
        fill(tree / str(number), 16)
    for number in range(mebibytes // 2):
        fill(tree / "many" / str(number), 1)


def measure_tree(
    wrapper: Wrapper, argv: Sequence[str | Path], folder: Path, cache: int
) -> tuple[float, float]:
    copy, victim = folder / "copy", folder / "victim"
    if copy.is_dir():
        shutil.rmtree(copy)
    copy.unlink(missing_ok=True)
    settle(victim, *(path for path in (folder / "tree").rglob("*") if path.is_file()))
    with limited_cache(cache) as group:
        if group is None:
            return 0.0, 1.0
        for _ in range(2):
            victim.read_bytes()
        before = count_pages(victim).cached
        seconds = timed(wrapper, argv)
        began = time.perf_counter()
        os.sync()
        seconds += time.perf_counter() - began
        return seconds, count_pages(victim).cached / before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="/var/tmp", help="where the files are")
    parser.add_argument("--size", type=int, default=512, help="MiB of the large file")
    parser.add_argument("--cache", type=int, default=256, help="MiB of cache for the tree")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    wrappers = find_wrappers()
    held = True
    for compare in (compare_reading, compare_small, compare_starts, compare_trees):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            held &= compare(wrappers, Path(folder), options)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
