"""Whole boots of an operating system from the disk under test, timed from QEMU's start to its end.

After the set-up boot come N read boots (every file walked and a tarball listed, twice) and N write
boots (three times zeroes, then the tarball unpacked and removed, synced each time). The clone is
what is repeated: boots of one clone are a series, and a run counts with their mean.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.guest.debian.one_boot import BootReport, parse_report
from diskproof.records import Artefact, Check, Metric, Series, WorkloadSpec
from diskproof.study.boots import BLOCKS, block_bytes, parse_scale, payload_members
from diskproof.workloads import WorkloadResult

BOOT_SECONDS = 1800.0
LEAST_FILES = 1000
"""A Debian has more."""


@dataclass(frozen=True)
class TimedBoot:
    """``ended`` is seconds since the first boot began."""

    seconds: float
    ended: float
    report: BootReport


class Boots:
    """The kind ``boots``."""

    def run(self, spec: WorkloadSpec, drive: Drive) -> WorkloadResult:
        """Raises RunFailure for a boot that fails, and ``workload`` for one out of turn."""
        kinds = ["read"] * int(spec.option("reads")) + ["write"] * int(spec.option("writes"))
        boots: list[TimedBoot] = []
        elapsed = 0.0
        for number, kind in enumerate(kinds, 2):  # the set-up boot was the first
            done = drive.execute(["boot", kind], timeout=BOOT_SECONDS)
            elapsed += done.seconds
            boots.append(TimedBoot(done.seconds, elapsed, parse_report(done.stdout)))
            _require_turn(boots[-1].report, kind, number)
        scale = parse_scale(spec.option("scale"))
        return WorkloadResult(
            metrics=metrics(boots),
            checks=check_boots(boots, scale),
            series=series(boots),
            artefacts=(_artefact(boots),),
            measured_seconds=elapsed,
        )


WORKLOAD = Boots()


def _require_turn(report: BootReport, kind: str, number: int) -> None:
    """The guest counts on its own disk: a boot that was lost, or another disk, would show."""
    if (report.kind, report.boots) != (kind, number):
        raise RunFailure(
            "workload",
            f"boot {number} is not the {kind} boot that was asked for",
            f"the guest says boot {report.boots}, {report.kind}",
            "its disk may have lost what the boot before had synced",
        )


def of_kind(boots: Sequence[TimedBoot], kind: str) -> list[TimedBoot]:
    return [boot for boot in boots if boot.report.kind == kind]


def metrics(boots: Sequence[TimedBoot]) -> tuple[Metric, ...]:
    """Mean seconds of a boot by kind and of its steps; ranked by writes, as published."""
    primary = "write" if of_kind(boots, "write") else "read"
    found = []
    for kind in ("read", "write"):
        if own := of_kind(boots, kind):
            mean = fmean(boot.seconds for boot in own)
            found.append(_seconds(f"{kind}_seconds", mean, kind == primary))
            found += [_seconds(f"{kind}_{name}_seconds", each) for name, each in _steps(own)]
    return tuple(found)


def _steps(boots: Sequence[TimedBoot]) -> list[tuple[str, float]]:
    """Mean seconds a boot spent in its steps of one name (``zeroes1`` to ``zeroes3`` together)."""
    names = dict.fromkeys(name.rstrip("0123456789") for name in boots[0].report.steps)
    return [
        (
            name,
            fmean(
                sum(s for step, s in boot.report.steps.items() if step.rstrip("0123456789") == name)
                for boot in boots
            ),
        )
        for name in names
    ]


def _seconds(name: str, value: float, primary: bool = False) -> Metric:
    return Metric(name, "s", value, higher_is_better=False, primary=primary)


def series(boots: Sequence[TimedBoot]) -> tuple[Series, ...]:
    """Every single time, in order: the first boots of a clone may differ from the later ones."""
    return tuple(
        Series(
            "boots",
            f"{kind}_boot_seconds",
            "s",
            tuple(boot.ended for boot in own),
            tuple(boot.seconds for boot in own),
        )
        for kind in ("read", "write")
        if (own := of_kind(boots, kind))
    )


def check_boots(boots: Sequence[TimedBoot], scale: float) -> tuple[Check, ...]:
    """Whether each boot did its work, by the guest's own counts."""
    members = payload_members(scale)
    zeroed = BLOCKS * block_bytes(scale)
    reads, writes = of_kind(boots, "read"), of_kind(boots, "write")
    checks = []
    if reads:
        walked = [each for boot in reads for each in boot.report.counts["walked"]]
        counts = sorted({each[0] for each in walked})
        right = len(walked) == 2 * len(reads) and counts[0] >= LEAST_FILES
        text = f"{counts[0]} to {counts[-1]} files, {len(walked)} times"
        wanted = f"all files (over {LEAST_FILES}), {2 * len(reads)} times"
        checks.append(Check("walked", wanted, text, _SOURCE, right))
        checks.append(_equal("listed", members, reads, 2))
    if writes:
        checks += [_equal("zeroed", zeroed, writes, 3), _equal("unpacked", members, writes, 1)]
        asked = min(boot.report.written_bytes for boot in writes)
        wanted = f"at least {3 * zeroed} bytes a boot"
        checks.append(Check("written", wanted, f"{asked} bytes", _STAT, asked >= 3 * zeroed))
    return tuple(checks)


_SOURCE = "the guest's report"
_STAT = "the guest's /sys/block/DISK/stat"


def _equal(name: str, wanted: int, boots: Sequence[TimedBoot], times: int) -> Check:
    found = [each[0] for boot in boots for each in boot.report.counts[name]]
    right = found == [wanted] * (times * len(boots))
    said = ", ".join(map(str, sorted(set(found)))) or "nothing"
    text = f"{said}, {len(found)} times"
    return Check(name, f"{wanted}, {times * len(boots)} times", text, _SOURCE, right)


def _artefact(boots: Sequence[TimedBoot]) -> Artefact:
    text = json.dumps([asdict(boot) for boot in boots], indent=1)
    return Artefact("boots.json", "application/json", text.encode())
