"""What recording costs: 4 KiB writes through recordfs, beside the same backing, in turns.

Prints for every load the medians of both and the median of the ratios of neighbouring turns;
exits with 1 when a load is below the bar. The log is on ``--log-folder`` (default /dev/shm), the
files on ``--folder``: a log on the backing's own file system is flushed with the backing and
slows both. Buffered loads without any flush are not judged: they measure copying to memory.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.native import require_native
from diskproof.process.start import run

BAR = 0.5
SIZE = "64m"


@dataclass(frozen=True)
class Load:
    """One fio job; ``flush`` is an fdatasync after so many writes, 0 for none.

    At depth 32 every write is O_DSYNC instead: fio sends more fdatasync the slower they are.
    """

    engine: str
    depth: int
    direct: bool
    flush: int = 0
    dsync: bool = False
    judged: bool = True

    @property
    def name(self) -> str:
        flush = f"fdatasync every {self.flush}" if self.flush else "no flush"
        flush = "O_DSYNC" if self.dsync else flush
        return f"{self.engine} d{self.depth} {'O_DIRECT' if self.direct else 'buffered'}, {flush}"


LOADS = (
    Load("psync", 1, True),
    Load("io_uring", 1, True),
    Load("io_uring", 32, True),
    Load("psync", 1, True, flush=1),
    Load("psync", 1, True, flush=32),
    Load("io_uring", 32, True, dsync=True),
    Load("psync", 1, False, flush=1),
    Load("psync", 1, False, flush=32),
    Load("io_uring", 32, False, dsync=True),
    Load("psync", 1, False, judged=False),
)


def load_args(load: Load, file: Path, seconds: float) -> list[str]:
    """The fio command of one turn."""
    return [
        *("fio", "--name=load", f"--filename={file}", f"--size={SIZE}", "--rw=randwrite"),
        *("--bs=4k", f"--ioengine={load.engine}", f"--iodepth={load.depth}", "--norandommap"),
        *(f"--direct={int(load.direct)}", f"--fdatasync={load.flush}", "--time_based"),
        *(f"--runtime={round(seconds * 1000)}ms", f"--sync={'dsync' if load.dsync else 'none'}"),
        "--output-format=json",
    ]


def measure_turn(load: Load, file: Path, seconds: float) -> float:
    """Writes a second, of a file that is fully allocated and flushed before."""
    done = run(load_args(load, file, seconds), timeout=seconds + 60)
    return float(json.loads(done.text)["jobs"][0]["write"]["iops"])


def fill(file: Path) -> None:
    argv = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=64", "conv=fsync", "status=none"]
    run(argv, timeout=120)


@contextmanager
def start_mount(folder: Path, log: Path) -> Iterator[Path]:
    """A recorded folder; its backing and mount are in ``folder``."""
    backing, mount = folder / "backing", folder / "mount"
    backing.mkdir(exist_ok=True)
    mount.mkdir(exist_ok=True)
    program = str(require_native("diskproof-recordfs"))
    run([program, str(backing), str(mount), "--log", str(log)], timeout=30)
    try:
        yield mount
    finally:
        run(["umount", str(mount)], timeout=60)


def compare(load: Load, folder: Path, log_folder: Path, options: argparse.Namespace) -> bool:
    """Measure one load in turns, print its row; False when it is below the bar."""
    plain, recorded = [], []
    log = log_folder / "crash.log"
    with start_mount(folder, log) as mount:
        files = (folder / "plain", mount / "recorded")
        for file in files:
            fill(file)
        for turn in range(options.turns):
            order = ((files[0], plain), (files[1], recorded))
            for file, into in order if turn % 2 == 0 else order[::-1]:
                into.append(measure_turn(load, file, options.seconds))
    log.unlink()
    ratio = statistics.median(r / p for r, p in zip(recorded, plain, strict=True))
    verdict = "not judged" if not load.judged else "ok" if ratio >= BAR else "below the bar"
    print(
        f"{load.name:40} {statistics.median(plain):9.0f} {statistics.median(recorded):9.0f} "
        f"{ratio:7.2f}  {verdict}",
        flush=True,
    )
    return ratio >= BAR or not load.judged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=".", help="where the files are (default: here)")
    parser.add_argument("--log-folder", default="/dev/shm")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    print(f"{'4 KiB random writes, 1/s':40} {'plain':>9} {'recorded':>9} {'ratio':>7}")
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        tempfile.TemporaryDirectory(dir=options.log_folder) as log_folder,
    ):
        held = [compare(load, Path(folder), Path(log_folder), options) for load in LOADS]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
