"""LVM, md, the kernel's iSCSI and ZFS for real inside guests whose kernels have them, by the same
tests.

Requires qemu-system-x86_64 and what builds the guest with LVM, md and Python (25 s at the first
time; ``diskproof guest build --with storage``), and the one with ZFS (some minutes the first time;
``--with zfs``).
"""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import build_guest
from diskproof.guest.ours.channel import Channel
from diskproof.guest.ours.kernel import EXTRA_MODULES
from diskproof.host.accel import probe_accel
from diskproof.qemu.machine import GuestMachine
from support.in_guest import WORK, bring_sources

pytestmark = pytest.mark.long

SECONDS = 2400.0  # a tenth of it, on a machine with nothing else to do
TESTS = Path(__file__).parent.parent
RESULT = f"{WORK}/result.xml"
# open-iscsi keeps what it knows of targets in a folder of the root, which is read-only here.
INITIATOR = """ip link set lo up; mkdir -p /run/lock /run/iscsi; cp -a /etc/iscsi/. /run/iscsi
mount --bind /run/iscsi /etc/iscsi"""


@pytest.mark.parametrize(
    ("extra", "kinds", "prepare"),
    [("storage", ("lvm", "md", "lio"), INITIATOR), ("zfs", ("zfs",), ":")],
)
def test_the_backing_tests_pass_in_a_guest_whose_kernel_has_it_all(
    extra: str,
    kinds: tuple[str, ...],
    prepare: str,
    run_dir: Path,
    request: pytest.FixtureRequest,
) -> None:
    if extra == "zfs":
        request.getfixturevalue("zfs_files")
    names = tuple(f"test_backings_{kind}.py" for kind in kinds)
    machine = GuestMachine(probe_accel().accel, memory_bytes=1 << 30)
    with start_guest(build_guest(extra=extra), machine, run_dir=run_dir) as guest:
        guest.load_modules(["ext4", "loop", *EXTRA_MODULES[extra]])
        tests = {TESTS / "integration" / name: f"tests/{name}" for name in names}
        tests[TESTS / "support" / "volumes.py"] = "tests/support/volumes.py"
        bring_sources(guest.channel, tests)
        done = guest.channel.exec(["sh", "-ec", prepare], timeout=60)
        assert done.exit.code == 0, done.stderr
        run_tests(guest.channel, names)
        result = guest.channel.read_file(RESULT, 1 << 20)
        guest.power_off()
    cases = list(xml.fromstring(result).iter("testcase"))
    outcomes = {case.get("name", ""): [part.tag for part in case] for case in cases}
    assert {name: parts for name, parts in outcomes.items() if parts} == {}
    for name in names:
        wanted = sum(line.startswith("def test_") for line in (TESTS / "integration" / name).open())
        ran = {
            case.get("name", "").partition("[")[0]
            for case in cases
            if name[:-3] in str(case.get("classname"))
        }
        assert len(ran) == wanted > 0


def run_tests(channel: Channel, names: tuple[str, ...]) -> None:
    """All of these files; what fails is told."""
    options = [
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=short",
        f"--junitxml={RESULT}",
        f"--basetemp={WORK}/temporary",
    ]
    done = channel.exec(
        ["python3", "-m", "pytest", *options, *(f"tests/{name}" for name in names)],
        timeout=SECONDS,
        cwd=WORK,
        env={"PYTHONPATH": f"{WORK}/src:{WORK}/tests", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.exit.code == 0, done.stdout.decode("utf-8", "replace")
