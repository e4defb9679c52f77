"""``diskproof doctor --walls``: a small study is run for real, and watched."""

from collections.abc import Iterator
from contextlib import ExitStack

from diskproof.backings import NO_CONSENT
from diskproof.cli.terminal import note
from diskproof.crash.run import CrashLab
from diskproof.errors import DiskproofError
from diskproof.guest.ours.build import find_guest
from diskproof.host.facts import probe_facts
from diskproof.host.walls_seen import start_look
from diskproof.lab.setup import LabSetup
from diskproof.measure.run import start_lab
from diskproof.plan import make_crash_plan, make_plan
from diskproof.plan.select import EXCLUDED
from diskproof.process.scratch import start_scratch_dir
from diskproof.records import HostFacts, PlannedRun
from diskproof.records.walls import Walls
from diskproof.study.load import Study, load_study

_PLAIN = "plain"
# One cell of each kind of program that touches a disk under test, as short as they can be.
_STUDY = """
name = "walls"
workloads = ["rand-write-4k-d32"]

[backings.plain]
kind = "directory"
path = "{folder}"

[backings.nbd]
kind = "nbd"
on = "plain"

[backings.iscsi]
kind = "iscsi"
on = "plain"

[factors]
backing = ["plain", "nbd", "iscsi"]
frontend = [{frontends}]
format = ["qcow2", "raw"]
cache = "writeback"

[[exclude]]
backing = "plain"
format = "raw"

[[exclude]]
backing = ["nbd", "iscsi"]
frontend = ["host", "container"]

[[exclude]]
backing = ["nbd", "iscsi"]
format = "qcow2"

[crash]
writers = "ledger"
faults = ["power"]
records = 16
seconds = "1s"
explore_seconds = "1s"

[protocol]
blocks = 1
size = "16MiB"
runtime = "1s"
ramp = "0s"
"""


def look_at_walls(*, guest: bool) -> tuple[set[Walls], list[str]]:
    """What the programs of real runs may do, and what could not be run, with the reason. A guest is
    booted only where it is built. Raises HostError where nothing can be measured."""
    missing: list[str] = []
    if guest and find_guest() is None:
        missing.append("QEMU: the guest is not built (diskproof guest build)")
        guest = False
    frontends = ("host", "daemon", "container", *(("guest",) if guest else ()))
    with ExitStack() as stack:
        folder = stack.enter_context(start_scratch_dir(large=True))
        images = folder / "images"
        images.mkdir(mode=0o711)
        images.chmod(0o711)
        text = _STUDY.format(folder=images, frontends=", ".join(f'"{name}"' for name in frontends))
        (folder / "study.toml").write_text(text)
        study = load_study(folder / "study.toml")
        facts = probe_facts(study.backings, NO_CONSENT, guest=guest, progress=note)
        backings = {backing.name: backing for backing in study.backings}
        # Nothing is stored: study and host need no names.
        setup = LabSetup("", "", backings, NO_CONSENT, facts.accel, study.run_timeout)
        seen = stack.enter_context(start_look())
        missing += [*_measure(study, facts, setup), *_crash(study, facts, setup)]
        stack.close()
    return seen, missing


def _measure(study: Study, facts: HostFacts, setup: LabSetup) -> Iterator[str]:
    """Run each cell once; gives what was not run, with the reason."""
    plan = make_plan(study, facts)
    cells = {(cell.level("frontend"), cell.level("backing")): cell for cell in plan.cells}
    frontends = dict(study.factors)["frontend"]
    wanted = [*((name, _PLAIN) for name in frontends), ("daemon", "nbd"), ("daemon", "iscsi")]
    reasons = "; ".join(sorted({each.reason for each in plan.dropped} - {EXCLUDED}))
    with start_lab(setup) as lab:
        for place in wanted:
            named = " on ".join(place)
            if place not in cells:
                yield f"{named}: {reasons}"
            elif failure := lab.execute(PlannedRun(0, 0, cells[place])).failure:
                yield f"{named}: {failure.what}: {failure.why}"


def _crash(study: Study, facts: HostFacts, setup: LabSetup) -> Iterator[str]:
    """A power cut under the storage daemon; gives why there was none."""
    try:
        cells, _ = make_crash_plan(study, facts)
    except DiskproofError as error:
        yield f"a power cut: {error.what}: {error.why}"
        return
    lab = CrashLab(setup)
    for cell in cells:
        if (cell.level("frontend"), cell.level("backing")) == ("daemon", _PLAIN):
            made = lab.execute(cell, study.crash.faults, lambda activity: None)
            if failure := made.failure:
                yield f"a power cut: {failure.what}: {failure.why}"
