"""How a recording ends: by others, by signals, killed, on a full disk; and what is refused.

Requires root, /dev/fuse and the built diskproof-recordfs.
"""

import errno
import os
import signal
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.process.native import require_native
from diskproof.process.start import run
from support.crash_logs import check_same, read_log, read_tree, replay
from support.memory_disks import start_memory_disk
from support.recording import (
    DEADLINE,
    Places,
    is_mounted,
    make_places,
    needs_fuse,
    start_recording,
    wait_until_unmounted,
)

pytestmark = needs_fuse


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order_even_while_files_are_open(tmp_path: Path, number: int) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        fd = os.open(recording.mount / "f", os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"before")
        os.kill(recording.process.pid, number)
        assert recording.process.wait(DEADLINE) == 0
        for dead in (lambda: os.write(fd, b"after"), lambda: os.close(fd)):
            with pytest.raises(OSError) as gone:
                dead()
            assert gone.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
        assert not is_mounted(recording.mount)
    records = read_log(recording.places.log)
    assert (records[-1].kind, records[-1].text) == ("end", "ended by a signal")
    check_same(replay(records, recording.places.base), read_tree(recording.places.backing))


def test_a_killed_recorder_leaves_its_log_and_no_mount(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        fd = os.open(recording.mount / "f", os.O_WRONLY | os.O_CREAT)
        for number in range(500):
            os.pwrite(fd, bytes([number % 256]) * 4096, number * 4096)
        recording.process.kill()  # its whole process group
        wait_until_unmounted(recording.mount)
        with pytest.raises(OSError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(OSError):
            os.close(fd)
    records = read_log(recording.places.log)
    assert records[-1].kind == "write"
    check_same(replay(records, recording.places.base), read_tree(recording.places.backing))


def test_a_lazy_unmount_by_others_ends_it_when_the_last_file_is_closed(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        with (recording.mount / "f").open("wb", buffering=0) as file:
            run(["umount", "--lazy", str(recording.mount)], timeout=DEADLINE)
            file.write(b"still recorded")
            assert recording.process.poll() is None
        assert recording.process.wait(DEADLINE) == 0
    records = read_log(recording.places.log)
    assert (records[-1].kind, records[-1].text) == ("end", "unmounted")
    assert any(record.payload.endswith(b"still recorded") for record in records)


@pytest.mark.parametrize("messages", ["messages", "small/messages"])
def test_a_full_log_disk_ends_the_log_and_fails_every_change(tmp_path: Path, messages: str) -> None:
    places = make_places(tmp_path)
    with start_memory_disk(tmp_path / "small", "size=1m") as small:
        places = replace(places, log=small / "crash.log", messages=tmp_path / messages)
        with start_recording(places) as recording:
            fd = os.open(recording.mount / "f", os.O_RDWR | os.O_CREAT)
            written = 0
            with pytest.raises(OSError) as full:
                while written < 1000:
                    os.pwrite(fd, bytes([written % 256]) * 4096, written * 4096)
                    written += 1
            for change in (
                lambda: os.fsync(fd),
                lambda: os.ftruncate(fd, 0),
                lambda: os.open(recording.mount / "new", os.O_WRONLY | os.O_CREAT),
                lambda: (recording.mount / ".diskproof-ack").write_bytes(b"done\n"),
            ):
                with pytest.raises(OSError) as refused:
                    change()
                assert refused.value.errno == errno.EIO
            assert os.pread(fd, 3, 0) == b"\0\0\0"  # reading goes on
            os.close(fd)
            recording.unmount()
            message = recording.process.read_log().decode()
        records = read_log(places.log)
    assert full.value.errno == errno.EIO
    assert 200 < written < 256
    assert "No space left" in message or "small" in messages  # that disk takes no message
    assert records[-1].kind == "end"
    assert "No space left" in records[-1].text
    assert sum(record.kind == "write" for record in records) == written


def test_a_full_backing_is_the_writers_error_and_stands_in_the_log(tmp_path: Path) -> None:
    with start_memory_disk(tmp_path / "small", "size=1m") as small:
        (small / "backing").mkdir()
        places = replace(make_places(tmp_path), backing=small / "backing")
        with start_recording(places) as recording:
            fd = os.open(recording.mount / "f", os.O_RDWR | os.O_CREAT)
            with pytest.raises(OSError) as full:
                os.posix_fallocate(fd, 0, 4 << 20)
            assert full.value.errno == errno.ENOSPC
            os.pwrite(fd, b"x", 0)
            os.close(fd)
            records = recording.finish()
    allocated = [record for record in records if record.kind == "fallocate"]
    assert [record.error for record in allocated] == [errno.ENOSPC]


def test_acknowledgements_come_from_a_socket_or_a_descriptor_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with start_recording(
        make_places(tmp_path / "a"), "--acks", str(tmp_path / "sock")
    ) as recording:
        with socket.socket(socket.AF_UNIX) as writer:
            writer.connect(str(tmp_path / "sock"))
            writer.sendall(b"first\nsecond\n")
            writer.shutdown(socket.SHUT_WR)
            assert writer.recv(1) == b""  # it has read all of it
        records = recording.finish()
    assert [r.text for r in records if r.kind == "acknowledge"] == ["first", "second"]
    (tmp_path / "b").mkdir()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        options = ("--acks", str(theirs.fileno()))
        places = make_places(tmp_path / "b")
        with start_recording(places, *options, fds=[theirs.fileno()]) as recording:
            theirs.close()
            ours.sendall(b"third")
            ours.shutdown(socket.SHUT_WR)
            assert ours.recv(1) == b""
            records = recording.finish()
    assert [r.text for r in records if r.kind == "acknowledge"] == ["third"]


def test_what_was_promised_before_the_end_is_in_the_log(tmp_path: Path) -> None:
    """Sent and not read when the mount goes; one connection stays open, and says no more."""
    lines = [f"promise {number}" for number in range(5_000)]
    options = ("--acks", str(tmp_path / "sock"))
    with (
        start_recording(make_places(tmp_path), *options) as recording,
        socket.socket(socket.AF_UNIX) as open_one,
    ):
        open_one.connect(str(tmp_path / "sock"))
        open_one.sendall(b"begun\nhalf a line")
        with socket.socket(socket.AF_UNIX) as writer:
            writer.connect(str(tmp_path / "sock"))
            writer.sendall("".join(f"{line}\n" for line in lines).encode())
        records = recording.finish()
    told = [record.text for record in records if record.kind == "acknowledge"]
    assert [line for line in told if line.startswith("promise")] == lines
    assert set(told) - set(lines) == {"begun", "half a line"}


def test_promises_without_an_end_do_not_keep_the_recording(tmp_path: Path) -> None:
    options = ("--acks", str(tmp_path / "sock"))
    with (
        start_recording(make_places(tmp_path), *options) as recording,
        socket.socket(socket.AF_UNIX) as writer,
    ):
        writer.connect(str(tmp_path / "sock"))
        sending = threading.Thread(target=promise_for_ever, args=(writer,))
        sending.start()
        recording.unmount()
        sending.join(DEADLINE)
    assert not sending.is_alive()
    assert read_log(tmp_path / "crash.log")[-1].kind == "end"


def promise_for_ever(writer: socket.socket) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            writer.sendall(b"more\n")


def test_in_the_background_the_command_returns_with_the_mount_there(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    argv = [str(require_native("diskproof-recordfs")), str(places.backing), str(places.mount)]
    done = run([*argv, "--log", str(places.log)], timeout=DEADLINE, check=False)
    assert is_mounted(places.mount), done.error_text
    try:
        (places.mount / "f").write_bytes(b"x")
    finally:
        run(["umount", str(places.mount)], timeout=DEADLINE)
    assert (places.backing / "f").read_bytes() == b"x"


def refused(places: Places, *options: str) -> str:
    """The message of a recorder that does not start; nothing is mounted then."""
    argv = [str(require_native("diskproof-recordfs")), str(places.backing), str(places.mount)]
    argv += ["--log", str(places.log), "--foreground", *options]
    done = run(argv, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert not is_mounted(places.mount)
    return done.error_text


def test_what_cannot_be_recorded_is_refused_with_the_reason(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    assert "inside the backing" in refused(replace(places, log=places.backing / "log"))
    assert "inside the mountpoint" in refused(replace(places, log=places.mount / "log"))
    assert "inside the backing" in refused(replace(places, backing=tmp_path))
    assert "No such file" in refused(replace(places, backing=tmp_path / "nothing"))
    assert "No such file" in refused(replace(places, log=tmp_path / "nothing" / "log"))
    assert "descriptor" in refused(places, "--acks", "250")
    places.log.unlink()
    places.log.write_bytes(b"")
    assert "exists" in refused(places)
    places.log.unlink()
    (places.mount / "x").touch()
    assert "not empty" in refused(places)
    (places.mount / "x").unlink()
    (places.backing / ".diskproof-ack").touch()
    assert ".diskproof-ack" in refused(places)


def test_another_file_system_inside_the_backing_is_refused(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with start_memory_disk(places.backing / "other", "size=64k"):
        assert "another file system" in refused(places)


def test_what_comes_past_the_recording_is_refused(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with start_recording(places) as recording:
        (places.backing / "smuggled").touch()
        with pytest.raises(OSError) as unknown:
            (recording.mount / "smuggled").stat()
        assert unknown.value.errno == errno.EIO
        assert "smuggled" in recording.process.read_log().decode()
        recording.unmount()


def test_the_end_of_one_recording_leaves_the_next_at_the_same_place_alone(tmp_path: Path) -> None:
    """The kernel numbers mounts anew: a late look for the old one must not find the new one."""
    places = make_places(tmp_path)
    argv = [str(require_native("diskproof-recordfs")), str(places.backing), str(places.mount)]
    for number in range(30):
        run([*argv, "--log", str(tmp_path / f"{number}.log")], timeout=DEADLINE)
        (places.mount / "f").write_bytes(b"x")
        run(["umount", str(places.mount)], timeout=DEADLINE)
    assert not is_mounted(places.mount)
