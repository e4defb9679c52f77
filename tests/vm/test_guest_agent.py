"""What the agent does for the host, in one real guest. Requires the built guest."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import GuestFiles
from diskproof.qemu.machine import GuestMachine


@pytest.fixture(scope="module")
def guest(guest_files: GuestFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    folder: Path = tmp_path_factory.mktemp("run")
    with start_guest(guest_files, GuestMachine("tcg", vcpus=2), run_dir=folder) as guest:
        yield guest
        guest.power_off()


def test_exit_codes(guest: Guest) -> None:
    assert guest.channel.exec(["true"], timeout=60).exit.code == 0
    assert guest.channel.exec(["false"], timeout=60).exit.code == 1
    with pytest.raises(RunFailure, match="no-such-program"):
        guest.channel.exec(["no-such-program"], timeout=60)


def test_output_arrives_while_the_program_runs(guest: Guest) -> None:
    """The program ends only after the host has seen its first words and written a file."""
    script = "echo first; until [ -e /tmp/go ]; do sleep 0.05; done; echo second >&2"
    seen: list[tuple[str, bytes]] = []

    def take(stream: str, data: bytes) -> None:
        seen.append((stream, data))
        if data == b"first\n":
            guest.channel.write_file("/tmp/go", b"")

    done = guest.channel.exec(["sh", "-c", script], timeout=60, on_output=take)
    assert seen == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert (done.stdout, done.stderr) == (b"first\n", b"second\n")


def test_environment_folder_and_stdin(guest: Guest) -> None:
    script = 'cat; echo "$GREETING from $PWD"'
    done = guest.channel.exec(
        ["sh", "-c", script], timeout=60, env={"GREETING": "hi"}, cwd="/tmp", stdin=b"in\n"
    )
    assert done.stdout == b"in\nhi from /tmp\n"


def test_a_program_that_takes_too_long_is_killed(guest: Guest) -> None:
    done = guest.channel.exec(["sleep", "600"], timeout=0.3)
    assert done.exit.timed_out
    assert done.exit.signal == signal.SIGKILL


def test_a_running_program_can_be_killed(guest: Guest) -> None:
    job = guest.channel.start_exec(["sleep", "600"], timeout=60)
    guest.channel.kill(job, signal.SIGTERM)
    assert guest.channel.wait_exec(job, 60).exit.signal == signal.SIGTERM


def test_files_there_and_back(guest: Guest) -> None:
    content = bytes(range(256)) * 2000
    guest.channel.write_file("/tmp/file", content, 0o755)
    assert guest.channel.read_file("/tmp/file", 1 << 20) == content
    done = guest.channel.exec(["stat", "-c", "%a %s", "/tmp/file"], timeout=60)
    assert done.stdout == b"755 512000\n"
    with pytest.raises(RunFailure, match="/tmp/file"):
        guest.channel.read_file("/tmp/file", 1000)


def test_the_guest_clock_advances_as_ours_does(guest: Guest) -> None:
    first, second = guest.channel.clock(), guest.channel.clock()
    assert first.host_before_ns <= first.host_after_ns <= second.host_before_ns
    passed = second.monotonic_ns - first.monotonic_ns
    assert 0 < passed <= 1.1 * (second.host_after_ns - first.host_before_ns)
    assert abs(second.realtime_ns - time.time_ns()) < 5_000_000_000


def test_fio_runs(guest: Guest) -> None:
    job = b"[job]\nioengine=libaio\nrw=randread\nbs=4k\nsize=4m\nfilename=/tmp/data\n"
    guest.channel.write_file("/tmp/job.fio", job)
    done = guest.channel.exec(["fio", "--output-format=json+", "/tmp/job.fio"], timeout=60)
    assert done.exit.code == 0, done.stderr
    assert b'"fio version"' in done.stdout


MAKE_AND_MOUNT = """
set -e
truncate -s 400M /tmp/image
mkfs.$1 -q /tmp/image
mount -o loop /tmp/image /mnt
echo kept > /mnt/file
umount /mnt
rm /tmp/image
"""


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs"])
def test_file_systems_are_made_and_mounted(guest: Guest, name: str) -> None:
    guest.load_modules([name, "loop"])
    done = guest.channel.exec(["sh", "-c", MAKE_AND_MOUNT, "sh", name], timeout=100)
    assert done.exit.code == 0, done.stderr
