"""Every reader of foreign bytes, given damaged ones: the same damage at every run of the tests.

Each has some true inputs, which are cut, flipped, doubled and mixed with what breaks readers. The
outcome is a record or the one error that the reader's docstring names, in time.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from diskproof.advice.dialects import READINGS
from diskproof.crash.end_state import read_exit
from diskproof.crash.verdict import Explored, take_line
from diskproof.errors import RunFailure, StudyError, UsageError
from diskproof.guest.debian.one_boot import parse_report
from diskproof.guest.ours.wire import parse_event
from diskproof.host.sampler import parse_samples
from diskproof.process.start import Completed
from diskproof.qemu.images import parse_info
from diskproof.recording.log import read_frames
from diskproof.report.monitor.samples import parse_recording
from diskproof.store.formats.fio import import_fio
from diskproof.store.formats.kvm_perf import import_kvm_perf
from diskproof.study.job_file import parse_job_file
from diskproof.study.load import parse_study
from diskproof.study.tile_file import parse_tile, read_built_in
from diskproof.tiles.loads.copy import read_check
from diskproof.tiles.loads.figures import parse_figures
from diskproof.workloads.fio_series import parse_iops_log
from diskproof.workloads.tree_copy import parse_cached

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
TRIES = 300
"""Inputs for each reader, however many true ones it has."""
SECONDS = 5.0
"""Of the processor, for one input."""
ODD = [
    b"", b"\0", b"\x1b[2J", b"\xff\xfe", b"\xed\xa0\x80", "\u202e".encode(), b"\n", b"\r\n", b"\t",
    b"-1", b"0", b"9" * 400, b"1e999", b"-Infinity", b"NaN", b"18446744073709551616", b"1e-400",
    b"null", b"true", b'"', b"'", b"[", b"{", b"}", b"]", b",", b":", b"=", b"[" * 2000, b"&a ",
    b"*a", b"../../etc/shadow", b"$(id)", b"a" * 5000, b"#", b"\\u0000", b"\\ud800",
]  # fmt: skip


def damaged(name: str, seeds: Sequence[bytes]) -> Iterator[bytes]:
    """``TRIES`` inputs, the same at every call."""
    choose = random.Random(name)
    for _ in range(TRIES):
        data = bytearray(choose.choice(seeds))
        for _ in range(choose.randint(1, 4)):
            at, end = sorted(choose.randint(0, len(data)) for _ in range(2))
            end = min(end, at + 200)
            change = choose.randrange(6)
            if change == 0 and data:
                data[min(at, len(data) - 1)] ^= 1 << choose.randrange(8)
            elif change == 1:
                del data[at:end]
            elif change == 2:
                data[at:at] = data[at:end]
            elif change == 3:
                del data[at:]
            else:  # in the place of a word, or between two
                word = data[at : at + choose.randrange(8)]
                data[at : at + (len(word) if change == 4 else 0)] = choose.choice(ODD)
        yield bytes(data)


@dataclass(frozen=True)
class Reader:
    name: str
    seeds: Sequence[bytes]
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    """What it may raise, by its docstring."""


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def files(*patterns: str) -> list[bytes]:
    found = [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    assert found, patterns
    return found


def fio_result() -> bytes:
    side = {
        "total_ios": 1000, "io_bytes": 4096000, "iops": 500.0, "bw_bytes": 2048000.0,
        "runtime": 2000, "clat_ns": {"N": 1000, "mean": 2e6, "min": 1, "max": 9, "stddev": 1.5,
                                     "bins": {"1000": 600, "2000": 400}},
    }  # fmt: skip
    job = {"jobname": "a", "error": 0, "elapsed": 3, "job_runtime": 2000, "read": side,
           "job options": {"name": "a", "rw": "randread", "bs": "4k"}}  # fmt: skip
    content = {"fio version": "fio-3.33", "timestamp_ms": 10**12, "jobs": [job]}
    return b"fio: a warning\n" + json.dumps(content, indent=1).encode()


def recording() -> bytes:
    columns = [{"name": "cpu.user", "unit": "percent", "text": "x"}]
    header = {"type": "header", "protocol": 1, "interval_ms": 500, "disks": [], "columns": columns}
    samples = [{"type": "sample", "time": number, "values": [number]} for number in (1, 2, 3)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in (header, *samples))


def read_machines(data: bytes) -> None:
    text = text_of(data)
    claimed = (reading for reading in READINGS if reading.claims(text[: 64 << 10]))
    if reading := next(claimed, None):
        reading.read_machines(text, "x")


def read_figures(data: bytes) -> None:
    assert all(math.isfinite(value) for value in parse_figures("s", data, "things").values())


BOOT = (
    b"kernel=6.1\nboots=2\nsize=2048\nwrite_cache=write back\nstarted=1.50\n"
    b"stat=1 2 3 4 5 6 7 8 9 10 11\nwalked=1 2\nstep.walk=1.00 2.50\ndone=boot\n"
)
LEDGER = '{"lost": 2, "lost_sequences": [[5, "torn"], [7, "old"]], "age_ns": 7, "type": "loss"'
LOSS = f'{{"type": "loss", "state": "a", "cut": 12, "ledger": {LEDGER}}}, "lost": 9, "age_ns": 7'
LOSS += ', "order": [2, 20, 1], "missing": [1, 2], "verdict": "loses", "check": "x", "text": ""}'
READERS = [
    Reader("fio's answers", [fio_result()], lambda d: import_fio([("x", d)], "x"), (UsageError,)),
    Reader("kvm-perf's text", [(GOLDEN / "kvm-perf-sample.txt").read_bytes()],
           lambda d: import_kvm_perf(d, "x"), (UsageError,)),
    Reader("fio's log of rates", [b"100, 50, 0, 0, 0\n200, 60, 1, 0, 0\n" * 3],
           lambda d: parse_iops_log(d, 100), ()),
    Reader("studies", files("studies/[!ow]*.toml"),
           lambda d: parse_study(text_of(d), folder=ROOT / "studies"), (StudyError,)),
    Reader("tile files", [read_built_in().encode()],
           lambda d: parse_tile(text_of(d), "x"), (StudyError,)),
    Reader("job files", [b"[global]\nioengine=libaio\n[a]\nrw=randread\nbs=4k\nnumjobs=2\n"],
           lambda d: parse_job_file(text_of(d)), (ValueError,)),
    Reader("configurations of machines", files("tests/fixtures/machines/*/[!e]*"), read_machines,
           (UsageError,)),
    Reader("events of the guest's agent",
           (GOLDEN / "wire" / "events.jsonl").read_bytes().splitlines(),
           parse_event, (ValueError,)),
    Reader("reports of boots", [BOOT], parse_report, (RunFailure,)),
    Reader("figures of tiles", [b"things 12\n", b"noise\nthings 1500.5\n"], read_figures,
           (RunFailure,)),
    Reader("checks of copies", [b'{"files": 3, "bytes": 9, "wrong": 0}'],
           lambda d: read_check("s", d), (RunFailure,)),
    Reader("answers of qemu-img", [b'{"format": "qcow2", "virtual-size": 9, "children": []}'],
           parse_info, (RunFailure,)),
    Reader("what a tool says is cached", [b'{"cached": 4096, "files": 3}'], parse_cached,
           (RunFailure,)),
    Reader("the explorer's lines", [LOSS.encode()],
           lambda d: take_line(Explored("power", 3, 0, None, True, 0, 7, 0.0), d), (RunFailure,)),
    Reader("the losses that a check tells", [f"{LEDGER}}}".encode(), b"3 rows\n"],
           lambda d: read_exit(Completed((), 1, d, b"", 0.0), ()), (RunFailure,)),
    Reader("samples of the monitor", [recording()], lambda d: parse_samples(d, 0), (RunFailure,)),
    Reader("recordings of the monitor", [recording(), b"time [s],a [s]\n1,2\n2,3\n"],
           lambda d: parse_recording(d, "x"), (UsageError,)),
]  # fmt: skip


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damage_is_read_or_refused_by_the_error_that_is_named(reader: Reader) -> None:
    for data in reader.seeds:
        reader.read(data)  # true ones, or little of the reader is reached
    for data in damaged(reader.name, reader.seeds):
        began = time.process_time()
        try:
            reader.read(data)
        except reader.errors as error:
            assert str(error), data[:200]
        assert time.process_time() - began < SECONDS, data[:200]


def test_a_damaged_crash_log_is_read_to_the_damage(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for data in damaged("crash log", [(GOLDEN / "crash-log.bin").read_bytes()]):
        log.write_bytes(data)
        try:
            assert sum(1 for _ in read_frames(log)) < 1000
        except RunFailure as failure:
            assert failure.kind == "log"
