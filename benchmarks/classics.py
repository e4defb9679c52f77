"""Our dd, iozone, fio presets and tree copy beside the tools themselves: do the figures agree?

The peers are run by hand with the options that we say we use: dd, fio, ``cp -a`` with ``sync -f``,
and iozone (Debian's iozone3, in non-free: install it by hand; without it that part is left out and
said to be). Each round measures ours and the peer twice, in changing order, on the same file
system. Prints the geometric mean of the rounds' ratios, ours over the peer, with an interval that
holds for all figures together (95 %, Bonferroni), and beside it what the peer differs from itself
by (median of its two figures in a round). Exits with 1 when an interval lies wholly more than
--noise from 1: by so much two clocks of the same thing may differ. A figure whose interval spans
more than a factor of 2 is said to be unsure: take a quieter host, or more rounds.
"""

import argparse
import json
import math
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from diskproof.drive import Drive
from diskproof.frontends.host import HostDrive
from diskproof.process.native import require_native
from diskproof.process.start import find_tool, run
from diskproof.records import WorkloadSpec
from diskproof.stats.intervals import mean_interval
from diskproof.study.load import parse_study
from diskproof.workloads import load_workload
from diskproof.workloads.tree_copy import parse_shape

Figures = dict[str, float]
TIMEOUT = 300.0
NOISE = 0.05
UNSURE = 2.0  # an interval that spans more than this factor tells neither way
FAMILY = 0.05  # how often all of it may find a difference where there is none
MIB = 1 << 20
DISK = 256 << 20
FILE, RECORDS = "16M", ("4K", "64K", "1M")
IOZONE_COLUMNS = ("write", "rewrite", "read", "reread", "random_read", "random_write")
PRESETS = {
    "rand-read-4k-d1": ("randread", "4k", "1"),
    "rand-write-4k-d32": ("randwrite", "4k", "32"),
    "seq-read": ("read", "1m", "8"),
}


@dataclass(frozen=True)
class Pair:
    """One thing measured by us and by a peer; each returns figures of the same names."""

    name: str
    ours: Callable[[Path], Figures]
    peer: Callable[[Path], Figures]


@dataclass
class Tally:
    """Logarithms of ratios by figure: ours over the peer, the peer over itself."""

    ours: dict[str, list[float]] = field(default_factory=dict)
    itself: dict[str, list[float]] = field(default_factory=dict)


def make_spec(name: str, **keys: str) -> WorkloadSpec:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    protocol = f'[protocol]\nsize = "{DISK}"\nruntime = "1s"\nramp = "0s"\n'
    return parse_study(f"[workloads.{name}]\n{lines}{protocol}").workloads[0]


def new_disk(room: Path, fill: bool = False) -> Path:
    path = room / "disk"
    path.unlink(missing_ok=True)
    with path.open("wb") as stream:
        stream.truncate(DISK)
    if fill:
        block = random.Random(1).randbytes(MIB)
        with path.open("r+b") as stream:
            for _ in range(DISK // MIB):
                stream.write(block)
        run(["sync", "--", str(path)], timeout=TIMEOUT)
        run(["dd", f"of={path}", "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], timeout=60)
    return path


def run_ours(spec: WorkloadSpec, room: Path, fill: bool = False) -> Figures:
    drive: Drive = HostDrive(new_disk(room, fill), DISK, room, "")
    result = load_workload(spec.kind).run(spec, drive)
    return {metric.name: metric.value for metric in result.metrics}


# -- the pairs ------------------------------------------------------------------------------


def dd_pair(name: str) -> Pair:
    writes = name == "dd-write"

    def ours(room: Path) -> Figures:
        return {"MiB/s": run_ours(make_spec(name), room, not writes)["bandwidth"]}

    def peer(room: Path) -> Figures:
        disk = new_disk(room, not writes)
        ends = ["if=/dev/zero", f"of={disk}", "conv=notrunc,fsync"]
        argv = ["dd", "bs=1M", f"count={DISK // MIB}"]
        argv += ends if writes else [f"if={disk}", "of=/dev/null"]
        told = run(argv, timeout=TIMEOUT).error_text
        return {"MiB/s": DISK / MIB / float(re.findall(r"copied, ([0-9.e-]+) s", told)[0])}

    return Pair(name, ours, peer)


def fio_pair(name: str) -> Pair:
    rw, bs, depth = PRESETS[name]
    reads = "read" in rw

    def ours(room: Path) -> Figures:
        told = run_ours(make_spec(name), room, reads)
        return {"IOPS": told.get("iops") or told["bandwidth"]}

    def peer(room: Path) -> Figures:
        disk = new_disk(room, reads)
        argv = ["fio", "--name=x", f"--filename={disk}", f"--rw={rw}", f"--bs={bs}", "--direct=1"]
        argv += [f"--iodepth={depth}", "--ioengine=libaio", "--runtime=1", "--time_based"]
        argv += ["--norandommap", "--fallocate=none", f"--size={DISK}", "--output-format=json"]
        text = run(argv, timeout=TIMEOUT).text
        return {"IOPS": json.loads(text)["jobs"][0]["read" if reads else "write"]["iops"]}

    return Pair(name, ours, peer)


def iozone_pair() -> Pair:
    keys = {"tests": "0,1,2", "min_file": FILE, "max_file": FILE}
    keys |= {"min_record": RECORDS[0], "max_record": RECORDS[-1]}

    def ours(room: Path) -> Figures:
        told = run_ours(make_spec("iozone", **keys), room)
        wanted = {f"{test} {record}/{FILE}" for test in IOZONE_COLUMNS for record in RECORDS}
        return {name: value for name, value in told.items() if name in wanted}

    def peer(room: Path) -> Figures:
        found: Figures = {}
        for record in RECORDS:
            for flush in ("-e", ""):
                row = parse_iozone(run(iozone_args(record, flush, room), timeout=TIMEOUT).text)
                chosen = (name for name in row if ("read" in name) == (flush == ""))
                found |= {f"{name} {record}/{FILE}": row[name] for name in chosen}
        return found

    return Pair("iozone", ours, peer)


def iozone_args(record: str, flush: str, room: Path) -> list[str]:
    """With ``-e`` iozone flushes after reading as well, which costs a flush of the disk that has
    nothing to do with reading: its figures for reads are those without."""
    sizes = ["-r", record.lower(), "-s", FILE.lower(), "-f", str(room / "z")]
    return ["iozone", *filter(None, [flush]), "-i", "0", "-i", "1", "-i", "2", *sizes]


def parse_iozone(text: str) -> Figures:
    """MiB/s by test from the last row that is all numbers; iozone prints KiB/s."""
    rows = [line.split() for line in text.splitlines()]
    numbers = [row for row in rows if len(row) >= 8 and all(word.isdigit() for word in row)]
    _, _, *values = numbers[-1]
    return {test: int(value) / 1024 for test, value in zip(IOZONE_COLUMNS, values, strict=False)}


def tree_pair() -> Pair:
    spec = make_spec("tree-copy", scale="1/16")
    shape = parse_shape(spec).args()
    program = str(require_native("diskproof-tree"))

    def clear(room: Path) -> None:
        run(["rm", "-rf", str(room / "source"), str(room / "target")], timeout=TIMEOUT)

    def ours(room: Path) -> Figures:
        clear(room)
        return {"MiB/s": run_ours(spec, room)["bandwidth"]}

    def peer(room: Path) -> Figures:
        clear(room)
        source, target = str(room / "source"), str(room / "target")
        run([program, "make", source, *shape], timeout=TIMEOUT)
        run([program, "cache", source, *shape, "--drop"], timeout=TIMEOUT)
        began = time.monotonic()
        run(["cp", "-a", source, target], timeout=TIMEOUT)
        run(["sync", "-f", target], timeout=TIMEOUT)
        return {"MiB/s": parse_shape(spec).bytes / MIB / (time.monotonic() - began)}

    return Pair("tree-copy", ours, peer)


# -- rounds and verdict ---------------------------------------------------------------------


def measure(pair: Pair, room: Path, rounds: int) -> Tally:
    """Ours, the peer and the peer again in each round, in an order of its own."""
    tally, order = Tally(), random.Random(1)
    for _ in range(rounds):
        turns: list[tuple[str, Callable[[Path], Figures]]] = [
            ("ours", pair.ours),
            ("peer", pair.peer),
            ("again", pair.peer),
        ]
        order.shuffle(turns)
        told = {name: act(room) for name, act in turns}
        for name, value in told["ours"].items():
            peer, again = told["peer"][name], told["again"][name]
            tally.ours.setdefault(name, []).append(math.log(value / math.sqrt(peer * again)))
            tally.itself.setdefault(name, []).append(math.log(again / peer))
    return tally


@dataclass(frozen=True)
class Verdict:
    """A ratio with its interval; ``itself`` is what the peer differs from itself by."""

    label: str
    ratio: float
    low: float
    high: float
    itself: float

    def differs(self, noise: float) -> bool:
        return self.low > 1 + noise or self.high < 1 / (1 + noise)

    @property
    def unsure(self) -> bool:
        return self.high > UNSURE * self.low

    def line(self, noise: float) -> str:
        words = "  differs" if self.differs(noise) else "  unsure" if self.unsure else ""
        spread = f"{self.low:7.2f} to {self.high:5.2f}"
        return f"{self.label:34}{self.ratio:9.2f} {spread} {self.itself:12.1%}{words}"


def judge(tallies: Mapping[str, Tally]) -> list[Verdict]:
    """All figures of all pairs; their intervals hold together."""
    figures = [
        (f"{pair} {name}", logs, tally.itself[name])
        for pair, tally in tallies.items()
        for name, logs in tally.ours.items()
    ]
    verdicts = []
    for label, logs, itself in figures:
        mean = mean_interval(logs, 1 - FAMILY / len(figures))
        half = math.inf if mean.half_width is None else mean.half_width
        low, high = math.exp(mean.mean - half), math.exp(min(700.0, mean.mean + half))
        scatter = math.expm1(statistics.median(map(abs, itself)))
        verdicts.append(Verdict(label, math.exp(mean.mean), low, high, scatter))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", help="a pair's name")
    parser.add_argument("--noise", type=float, default=NOISE, help="a share, 0.05 by default")
    options = parser.parse_args()
    pairs = [dd_pair("dd-write"), dd_pair("dd-read"), *map(fio_pair, PRESETS), tree_pair()]
    if find_tool("iozone"):
        pairs.append(iozone_pair())
    else:
        print("iozone is not there: that part is left out (apt-get install iozone3, non-free)")
    tallies = {}
    for pair in pairs:
        if options.only in (None, pair.name):
            with tempfile.TemporaryDirectory(dir=options.folder) as room:
                tallies[pair.name] = measure(pair, Path(room), options.rounds)
    if not tallies:
        print(f"nothing was measured: no pair {options.only!r} here")
        return 3
    print(f"{'':34}ours/peer {'interval':>16} {'peer/itself':>12}   ({options.rounds} rounds)")
    verdicts = judge(tallies)
    for verdict in verdicts:
        print(verdict.line(options.noise))
    short = [verdict.label for verdict in verdicts if verdict.differs(options.noise)]
    unsure = sum(verdict.unsure and not verdict.differs(options.noise) for verdict in verdicts)
    if unsure:
        print(f"{unsure} of {len(verdicts)} are unsure")
    told = f"by more than {options.noise:.0%}"
    print(f"{len(short)} differ {told}: {', '.join(short)}" if short else f"none differs {told}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
