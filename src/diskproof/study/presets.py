"""The fio workloads by name, as data. Sizes are bytes in fio's spelling, times in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """One fio load. ``fill``: the disk is written once before, so that reads find data.

    ``primary`` is the metric the workload is ranked by (``iops`` or ``bandwidth``);
    ``fsync`` counts writes per flush (0: none); ``distribution`` is fio's random_distribution.
    ``cold``: measured from the first operation on, without a ramp, for the warming up is what it
    shows.
    """

    name: str
    help: str
    rw: str
    bs: str
    iodepth: int
    fill: bool
    primary: str
    fsync: int = 0
    rwmixread: int = 0
    distribution: str = "random"
    cold: bool = False


def _random(rw: str, bs: str, depth: int) -> Preset:
    verb = "reads" if rw == "randread" else "writes"
    name = f"rand-{rw.removeprefix('rand')}-{bs}-d{depth}"
    help_text = f"random {bs} {verb} at queue depth {depth}"
    return Preset(name, help_text, rw, bs, depth, rw == "randread", "iops")


PRESETS = (
    Preset("seq-read", "sequential 1M reads, depth 8", "read", "1m", 8, True, "bandwidth"),
    Preset("seq-write", "sequential 1M writes, depth 8", "write", "1m", 8, False, "bandwidth"),
    *(
        _random(rw, bs, depth)
        for rw in ("randread", "randwrite")
        for bs, depth in (("4k", 1), ("4k", 32), ("512k", 1), ("1m", 1))
    ),
    Preset(
        "sync-write-4k",
        "sequential 4k writes with a flush after each",
        "write",
        "4k",
        1,
        False,
        "iops",
        fsync=1,
    ),
    Preset(
        "mixed-70-30",
        "random 4k, 70 % reads, depth 16",
        "randrw",
        "4k",
        16,
        True,
        "iops",
        rwmixread=70,
    ),
    Preset(
        "zipf-read",
        "skewed re-reads (zipf 1.2), 4k, depth 1: warms caches, shows the warm-up curve",
        "randread",
        "4k",
        1,
        True,
        "iops",
        distribution="zipf:1.2",
        cold=True,
    ),
)

PRESET_BY_NAME = {preset.name: preset for preset in PRESETS}
