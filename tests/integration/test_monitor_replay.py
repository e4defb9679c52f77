"""The monitor on recorded trees of /proc and /sys, checked by formulas written down once more.

``tests/golden/proc-host`` is a host with a virtio disk while fio writes with fsync, ``proc-guest``
a small guest in which `dd conv=fsync` writes eight times between two moments; both whole and real.
"""

import csv
import io
import json
import math
from pathlib import Path

import pytest

from support.watching import monitor

GOLDEN = Path(__file__).parents[1] / "golden"
TREES = ("proc-host", "proc-guest")
SECTOR = 512
MIB = 1 << 20

Values = dict[str, float]


def replay(tree: Path, *arguments: str) -> list[Values]:
    """One dict a sample; units are left off the names."""
    text = monitor("--replay", tree, "--csv", *arguments).text
    rows = csv.DictReader(io.StringIO(text))
    return [
        {name.partition(" [")[0]: float(value or "nan") for name, value in row.items()}
        for row in rows
    ]


def moments(tree: Path) -> list[tuple[Path, float]]:
    """Each moment's tree and its monotonic time."""
    folders = sorted(path for path in tree.iterdir() if path.is_dir())
    return [(path, float((path / "moment").read_text().split()[0])) for path in folders]


def diskstats(root: Path) -> dict[str, list[int]]:
    lines = (root / "proc/diskstats").read_text().splitlines()
    return {line.split()[2]: [int(word) for word in line.split()[3:]] for line in lines}


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def iostat(before: list[int], after: list[int], seconds: float) -> Values:
    """What sysstat's iostat -x makes of the difference of two lines."""
    d = [b - a for a, b in zip(before, after, strict=True)]
    reads, read_sectors, read_ms = d[0], d[2], d[3]
    writes, write_sectors, write_ms = d[4], d[6], d[7]
    discards, discard_sectors, discard_ms = d[11], d[13], d[14]
    flushes, flush_ms = d[15], d[16]
    sectors = read_sectors + write_sectors + discard_sectors
    return {
        "read_iops": reads / seconds,
        "write_iops": writes / seconds,
        "flush": flushes / seconds,
        "discard_iops": discards / seconds,
        "read": read_sectors * SECTOR / MIB / seconds,
        "write": write_sectors * SECTOR / MIB / seconds,
        "discard": discard_sectors * SECTOR / MIB / seconds,
        "read_merged": d[1] / seconds,
        "write_merged": d[5] / seconds,
        "discard_merged": d[12] / seconds,
        "read_await": ratio(read_ms, reads),
        "write_await": ratio(write_ms, writes),
        "discard_await": ratio(discard_ms, discards),
        "flush_await": ratio(flush_ms, flushes),
        "read_size": ratio(read_sectors / 2, reads),
        "write_size": ratio(write_sectors / 2, writes),
        "discard_size": ratio(discard_sectors / 2, discards),
        "areq_sz": ratio(sectors / 2, reads + writes + discards),
        "aqu_sz": d[10] / (seconds * 1000),
        "util": min(100.0, d[9] / (seconds * 10)),
        "in_flight": after[8],
        "efficiency": ratio(
            (read_sectors + write_sectors) * SECTOR / MIB / seconds,
            min(100.0, d[9] / (seconds * 10)),
        ),
    }


def check(got: Values, wanted: Values) -> None:
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value, rel=1e-5, abs=2e-6, nan_ok=True), name


@pytest.mark.parametrize("name", TREES)
def test_disks_by_the_formulas_of_iostat(name: str) -> None:
    tree = GOLDEN / name
    samples = replay(tree, "-x", "--full")
    points = moments(tree)
    assert len(samples) == len(points) - 1 == 2
    for ((a, start), (b, end)), sample in zip(
        zip(points, points[1:], strict=False), samples, strict=True
    ):
        before, after = diskstats(a), diskstats(b)
        disks = [disk for disk in after if (a / "sys/block" / disk / "device").exists()]
        assert disks
        for disk in disks:
            values = iostat(before[disk], after[disk], end - start)
            check(sample, {f"disk.{disk}.{key}": value for key, value in values.items()})


def test_the_guest_flushed_eight_times_between_two_moments() -> None:
    tree = GOLDEN / "proc-guest"
    points = moments(tree)
    for at, sample in enumerate(replay(tree, "--flush", "-D", "vdb,total")):
        seconds = points[at + 1][1] - points[at][1]
        assert sample["disk.vdb.flush"] * seconds == pytest.approx(8, rel=1e-5)
        assert sample["disk.flush"] == sample["disk.vdb.flush"]
        assert sample["disk.vdb.flush_await"] == pytest.approx((25, 46)[at] / 8)


@pytest.mark.parametrize("name", TREES)
def test_processors_and_memory(name: str) -> None:
    tree = GOLDEN / name
    points = moments(tree)
    for at, sample in enumerate(replay(tree, "-c", "-m", "-y", "--psi")):
        (a, start), (b, end) = points[at], points[at + 1]
        ticks = [
            [int(word) for word in (root / "proc/stat").read_text().split("\n")[0].split()[1:9]]
            for root in (a, b)
        ]
        user, nice, system, idle, wait, hard, soft, steal = (
            100 * (after - before) / (sum(ticks[1]) - sum(ticks[0]))
            for before, after in zip(*ticks, strict=True)
        )
        stalled = [
            int((root / "proc/pressure/io").read_text().split("total=")[1].split()[0])
            for root in (a, b)
        ]
        memory = {
            line.split(":")[0]: int(line.split()[1]) / 1024
            for line in (b / "proc/meminfo").read_text().splitlines()
        }
        cache = memory["Cached"] + memory["SReclaimable"] - memory["Shmem"]
        in_use = memory["MemTotal"] - memory["MemFree"]
        check(
            sample,
            {
                "cpu.user": user + nice,
                "cpu.system": system + hard + soft,
                "cpu.idle": idle,
                "cpu.iowait": wait,
                "cpu.steal": steal,
                "cpu.true_load": user + nice + system + hard + soft,
                "memory.used_with_cache": in_use,
                "memory.used": in_use - memory["Buffers"] - cache,
                "memory.available": memory["MemAvailable"],
                "psi.io": (stalled[1] - stalled[0]) / 1e4 / (end - start),
            },
        )


def write_tree(root: Path, moment: str, **files: str) -> None:
    for path, text in {"moment": moment, **files}.items():
        file = root / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_a_wall_clock_that_jumps_back_changes_no_rate(tmp_path: Path) -> None:
    for at, (monotonic, wall) in enumerate([(10, 5000), (12, 1000), (14, 9e9)]):
        line = f"8 0 sda {at * 10} 0 {at * 80} 1 0 0 0 0 0 1 1\n"
        write_tree(tmp_path / str(at), f"{monotonic} {wall}", proc__diskstats=line)
    samples = replay(tmp_path, "-r")
    assert [sample["time"] for sample in samples] == [1000, 9e9]
    assert [sample["disk.read_iops"] for sample in samples] == [5, 5]


def test_hundreds_of_disks_and_processors(tmp_path: Path) -> None:
    disks, cpus = 600, 256
    for at in range(2):
        lines = [f"8 {n} sd{n}x {at * n} 0 {at * n * 8} 1 0 0 0 0 0 1 1\n" for n in range(disks)]
        stat = [f"cpu{n} {at * n} 0 0 {at * (256 - n)} 0 0 0 0 0 0\n" for n in range(cpus)]
        write_tree(
            tmp_path / str(at), f"{at} 1", proc__diskstats="".join(lines), proc__stat="".join(stat)
        )
    (sample,) = replay(tmp_path, "-c", "-r", "--full")
    assert len(sample) == 1 + 6 * cpus + 2 * disks
    assert sample["cpu.64.user"] == 25 and sample["disk.sd599x.read_iops"] == 599


@pytest.mark.parametrize(
    "text", ["", "\n\n", "cpu\n", "x 0 sda x y\n", "\x00\xff" * 50, "9" * 5000]
)
def test_files_that_are_cut_or_empty(tmp_path: Path, text: str) -> None:
    names = ("stat", "diskstats", "meminfo", "vmstat", "net/dev", "loadavg", "interrupts")
    for at in range(2):
        files = {f"proc__{name.replace('/', '__')}": text for name in names}
        write_tree(tmp_path / str(at), f"{at} 1", **files)
    done = monitor("--replay", tmp_path, "-cdngymlpsirx", "--faults", "--psi", "--json")
    sample = json.loads(done.text.splitlines()[1])
    assert set(sample["values"]) <= {None, 0}


def test_a_recording_that_is_not_there() -> None:
    done = monitor("--replay", "/nonexistent", check=False)
    assert done.returncode == 2 and "/nonexistent" in done.error_text
