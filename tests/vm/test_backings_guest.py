"""LVM, md and the kernel's iSCSI for real inside a guest whose kernel has them, by the same tests.

Requires qemu-system-x86_64 and what builds the guest with LVM, md and Python (25 s at the first
time; ``diskproof guest build --with storage``).
"""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import GuestFiles, build_guest
from diskproof.guest.ours.kernel import EXTRA_MODULES
from diskproof.host.accel import probe_accel
from diskproof.qemu.machine import GuestMachine
from support.in_guest import WORK, bring_sources

pytestmark = pytest.mark.long

SECONDS = 1080.0  # a twentieth of it, on a machine with nothing else to do
TESTS = Path(__file__).parent.parent
FILES = tuple(f"test_backings_{name}.py" for name in ("lvm", "md", "lio"))
RESULT = f"{WORK}/result.xml"
# open-iscsi keeps what it knows of targets in a folder of the root, which is read-only here.
INITIATOR = """ip link set lo up; mkdir -p /run/lock /run/iscsi; cp -a /etc/iscsi/. /run/iscsi
mount --bind /run/iscsi /etc/iscsi"""


@pytest.fixture(scope="module")
def storage_files() -> GuestFiles:
    return build_guest(extra="storage")


def test_the_backing_tests_pass_in_a_guest_whose_kernel_has_it_all(
    storage_files: GuestFiles, run_dir: Path
) -> None:
    machine = GuestMachine(probe_accel().accel, memory_bytes=1 << 30)
    with start_guest(storage_files, machine, run_dir=run_dir) as guest:
        guest.load_modules(["ext4", "loop", *EXTRA_MODULES["storage"]])
        tests = {TESTS / "integration" / name: f"tests/{name}" for name in FILES}
        tests[TESTS / "support" / "volumes.py"] = "tests/support/volumes.py"
        bring_sources(guest.channel, tests)
        done = guest.channel.exec(["sh", "-ec", INITIATOR], timeout=60)
        assert done.exit.code == 0, done.stderr
        options = [
            "-p",
            "no:cacheprovider",
            "-q",
            "--tb=short",
            f"--junitxml={RESULT}",
            f"--basetemp={WORK}/temporary",
        ]
        done = guest.channel.exec(
            ["python3", "-m", "pytest", *options, *(f"tests/{name}" for name in FILES)],
            timeout=SECONDS,
            cwd=WORK,
            env={"PYTHONPATH": f"{WORK}/src:{WORK}/tests", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        told = done.stdout.decode("utf-8", "replace")
        assert done.exit.code == 0, told
        result = guest.channel.read_file(RESULT, 1 << 20)
        guest.power_off()
    cases = list(xml.fromstring(result).iter("testcase"))
    outcomes = {case.get("name", ""): [part.tag for part in case] for case in cases}
    assert {name: parts for name, parts in outcomes.items() if parts} == {}
    for name in FILES:
        wanted = sum(line.startswith("def test_") for line in (TESTS / "integration" / name).open())
        ran = {
            case.get("name", "").partition("[")[0]
            for case in cases
            if name[:-3] in str(case.get("classname"))
        }
        assert len(ran) == wanted > 0
