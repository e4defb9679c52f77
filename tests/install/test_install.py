"""The wheel on clean systems, as root and as an ordinary user: what a new user does with it."""

import json
import logging
import shutil
import time
from pathlib import Path

import pytest

from support.install_systems import COMPILERS, SUITES, USER, System, newest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("monitor", "nocache", "states", "sync-drop", "sync-trace", "sync-ways")


@pytest.fixture(scope="session")
def installed(system: System) -> System:
    """With the wheel in it, by pipx for root and by uv for the user."""
    wheel = f"/mnt/dist/{newest('*.whl')}"
    system.run("pipx", "install", wheel, timeout=900)
    system.run("pipx", "install", "uv", user=USER, timeout=600)
    system.run("uv", "tool", "install", wheel, user=USER, timeout=900)
    return system


def test_nothing_there_could_have_compiled(installed: System) -> None:
    for name in COMPILERS:
        installed.run("sh", "-c", f"! command -v {name}")
    told = installed.run("python3", "--version")
    assert told.split()[1].startswith(SUITES[installed.suite])


def test_every_tool_runs_for_root_and_for_others(installed: System) -> None:
    for user in (0, USER):
        assert installed.run("diskproof", "--version", user=user).startswith("diskproof ")
        for tool in TOOLS:
            assert "Usage" in installed.run(f"diskproof-{tool}", "--help", user=user)


def test_the_tools_do_their_main_job(installed: System) -> None:
    job = ("dd", "if=/dev/zero", "of=written", "bs=4k", "count=8", "oflag=dsync")
    for user in (0, USER):
        dropped = installed.run("diskproof", "sync", "drop", "--json", "-", *job, user=user)
        assert '"' in dropped
        installed.run("diskproof", "nocache", "--", *job, user=user)
        seen = installed.run("diskproof", "monitor", "--json", "0.1", "2", user=user)
        assert [json.loads(line) for line in seen.splitlines() if line.startswith("{")]


def test_doctor_names_what_the_distribution_must_add(installed: System) -> None:
    for user in (0, USER):
        told = installed.run("diskproof", "doctor", user=user, expected=(0, 1))
        assert "apt-get install crun" in told
        assert "Traceback" not in told


def test_a_missing_extra_is_told_with_the_line_that_brings_it(installed: System) -> None:
    installed.run("diskproof", "init", "a.toml")
    installed.run("sh", "-c", "mkdir -p made")
    told = installed.run(
        "diskproof", "plan", "a.toml", "--store", "postgresql://x/y", expected=(3,)
    )
    assert "pipx inject diskproof 'psycopg[binary]'" in told


def test_from_nothing_to_a_ranked_table(installed: System) -> None:
    began = time.monotonic()
    installed.run("diskproof", "guest", "build", timeout=900)
    installed.run("mkdir", "-p", "/var/tmp/disks")
    told = installed.run(
        *("diskproof", "quick", "/var/tmp/disks", "--for", "proxmox", "--budget", "2m"),
        timeout=900,
        expected=(0, 1),
    )
    took = f"{installed.suite}: guest and quick study in {time.monotonic() - began:.0f} s"
    logging.getLogger(__name__).warning(took)
    assert "guest" in told and "IOPS" in told
    assert installed.run("diskproof", "rank")
    installed.run("diskproof", "advise", "--for", "proxmox", expected=(0, 1))
    assert "keep" in installed.run("diskproof", "status")


FAKE = """set -e
mkdir -p fake/DEBIAN
printf '%s\\n' "Package: pve-qemu-kvm" "Version: 11.0.0-1" "Architecture: all" \\
    "Maintainer: Nobody <nobody@localhost>" "Description: conflicts as the real one does" \\
    "Conflicts: qemu-system-x86, qemu-utils, qemu-system-common" \\
    "Provides: qemu-system-x86, qemu-utils, qemu-system-common" >fake/DEBIAN/control
dpkg-deb --build fake fake.deb
dpkg --force-all --install fake.deb
"""


def test_a_proxmox_host_is_left_alone(installed: System) -> None:
    """What its package conflicts with would take the hypervisor away."""
    installed.run("sh", "-c", FAKE)
    shutil.copytree(ROOT / "setup", installed.root / "opt" / "setup")
    before = installed.run("dpkg-query", "--show")
    told = installed.run("/opt/setup/packages", "setup/packages-demo.txt", expected=(1,))
    assert "Proxmox" in told and "gcc" in told and "pipx install" in told
    assert installed.run("dpkg-query", "--show") == before


def test_it_goes_without_a_trace(installed: System) -> None:
    installed.run("uv", "tool", "uninstall", "diskproof", user=USER)
    left = installed.run("sh", "-c", "ls -A .local/bin", user=USER)
    assert "diskproof" not in left
