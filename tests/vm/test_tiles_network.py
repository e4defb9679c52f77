"""Guests on a network of their own reach each other and nothing else.

Requires the built guest and qemu-system-x86_64; a bridge also root and /dev/net/tun, and watching
the host's interfaces takes root.
"""

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.boot_states import start_boot_states
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.jobs import GuestExecution
from diskproof.qemu.machine import GuestMachine
from diskproof.tiles.group import GuestKey, Member, start_group
from diskproof.tiles.network import LOG, Network, ip_address, mac_address, start_network

pytestmark = pytest.mark.long

IS_ROOT = os.geteuid() == 0
SEATS = [(1, 1), (1, 2), (2, 1)]
KEYS: list[GuestKey] = [(1, "one"), (1, "two"), (2, "one")]
PORT = 5000
PARTS = 64  # of 64 KiB
STRANGER = "10.77.99.99"
LINK = """
for path in /sys/class/net/*; do
card=${path##*/}
[ "$card" = lo ] || break
done
ip link set lo up
ip address add "$1/16" dev "$card"
ip link set "$card" up
ip route add default dev "$card"
cat "/sys/class/net/$card/address"
"""
# The root has a small Perl. Both give a sum of what they sent or got, and how much it was.
RECEIVE = """
use Socket;
socket(S, PF_INET, SOCK_STREAM, 0) or die $!;
bind(S, sockaddr_in($ARGV[0], INADDR_ANY)) && listen(S, 1) or die $!;
my $from = accept(C, S);
while (sysread(C, my $part, 65536)) { $n += length $part; $sum += unpack("%32C*", $part) }
print "$n $sum ", inet_ntoa((sockaddr_in($from))[1]);
"""
SEND = """
use Socket;
do { socket(C, PF_INET, SOCK_STREAM, 0) or die $! }
until connect(C, sockaddr_in($ARGV[1], inet_aton($ARGV[0]))) || !$!{ECONNREFUSED} && die "$!\\n";
my $part = pack("N*", 0 .. 16383);
for (1 .. $ARGV[2]) { print C $part or die $! }
close C or die $!;
print $ARGV[2] * length $part, " ", $ARGV[2] * unpack("%32C*", $part);
"""


@pytest.fixture(params=["bridge", "switch"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    if request.param == "bridge" and not (IS_ROOT and Path("/dev/net/tun").exists()):
        pytest.skip("a bridge takes root and /dev/net/tun")
    with start_network(tmp_path, request.param, SEATS) as network:
        yield network


@contextmanager
def start_three(
    files: GuestFiles, network: Network, folder: Path
) -> Iterator[Mapping[GuestKey, Guest]]:
    members = {}
    for key, seat in zip(KEYS, SEATS, strict=True):
        run_dir = folder / f"{key[0]}-{key[1]}"
        run_dir.mkdir()
        run_dir.chmod(0o711)
        machine = GuestMachine("tcg", memory_bytes=192 << 20, card=network.port(*seat))
        members[key] = Member(files, machine, run_dir)
    with (
        start_boot_states(folder) as states,
        start_group(members, deadline=240, states=states) as guests,
    ):
        yield guests


def test_guests_reach_each_other_and_nothing_else(
    network: Network, guest_files: GuestFiles, tmp_path: Path
) -> None:
    with watch_host() as seen, start_three(guest_files, network, tmp_path) as guests:
        for key, seat in zip(KEYS, SEATS, strict=True):
            done = sh(guests[key], LINK, ip_address(*seat))
            assert done.exit.code == 0, done.stderr
            assert done.stdout.decode().strip() == mac_address(*seat)
        for source, target in ((0, 1), (1, 2), (2, 0)):
            check_flow(guests, source, target)
        check_out_of_reach(guests[KEYS[0]])
    if IS_ROOT:
        assert seen["own"], "the watch does not see even what it should"
        assert seen["theirs"] == []
    if network.kind == "switch":
        assert (tmp_path / LOG).read_text().count(" 0 dropped") <= len(SEATS)


def check_flow(guests: Mapping[GuestKey, Guest], source: int, target: int) -> None:
    """4 MiB over TCP from one guest to another come as they were sent, and from whom."""
    receiver, sender = guests[KEYS[target]], guests[KEYS[source]]
    job = receiver.channel.start_exec(perl(RECEIVE, PORT), timeout=60)
    sent = sender.channel.exec(perl(SEND, ip_address(*SEATS[target]), PORT, PARTS), timeout=60)
    assert sent.exit.code == 0, sent.stderr
    assert sent.stdout.startswith(b"%d " % (PARTS << 16))
    received = receiver.channel.wait_exec(job, 60)
    assert received.stdout == b"%s %s" % (sent.stdout, ip_address(*SEATS[source]).encode())
    neighbours = sh(sender, "ip neighbour").stdout.decode().splitlines()
    (line,) = [line for line in neighbours if line.startswith(ip_address(*SEATS[target]) + " ")]
    assert mac_address(*SEATS[target]) in line


def check_out_of_reach(guest: Guest) -> None:
    """A server on all of the host's addresses is there for the host, not for a guest; and the
    host has no way to a guest."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        jobs = [
            guest.channel.start_exec(perl(SEND, address, port, 1), timeout=60)
            for address in (find_own_address(), STRANGER)
        ]
        for job in jobs:
            assert guest.channel.wait_exec(job, 90).exit.code == errno.EHOSTUNREACH
        with socket.create_connection((find_own_address(), port), 30):
            server.settimeout(30)
            caller = server.accept()[1][0]
            assert caller == find_own_address(), "somebody else was first"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    with socket.socket() as client, pytest.raises(OSError, match="unreachable"):
        # Not to the host's router, which would take it outside.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        client.connect((ip_address(*SEATS[0]), PORT))


def find_own_address() -> str:
    """The address that the host goes out with, else loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        try:
            out.connect(("192.0.2.254", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(out.getsockname()[0])


def perl(script: str, *arguments: object) -> list[str]:
    return ["perl", "-e", f"use Errno;{script}", *map(str, arguments)]


def sh(guest: Guest, script: str, *arguments: str) -> GuestExecution:
    return guest.channel.exec(["sh", "-c", script, "sh", *arguments], timeout=60)


def is_theirs(frame: bytes) -> bool:
    """Whether an Ethernet frame has a guest's address in its head, or as what it asks or says."""
    if bytes.fromhex("5254004d") in (frame[0:4], frame[6:10]):
        return True
    ends = {b"\x08\x00": (26, 30), b"\x08\x06": (28, 38)}.get(frame[12:14], ())  # IPv4, ARP
    return any(frame[at : at + 2] == bytes([10, 77]) for at in ends)


def test_what_is_watched_for_is_told_from_other_traffic() -> None:
    other, plain = bytes.fromhex("02fc00000001"), bytes(14)
    ours, ip = other * 2 + b"\x08\x00" + bytes(12), bytes([10, 77, 1, 1])
    assert is_theirs(ours + ip + bytes(20)) and is_theirs(ours + bytes(4) + ip)
    assert is_theirs(other * 2 + b"\x08\x06" + plain + ip + bytes(10))
    assert is_theirs(other * 2 + b"\x08\x06" + plain + bytes(10) + ip)
    assert is_theirs(other + bytes.fromhex("5254004d0101") + plain)
    assert not is_theirs(ours + bytes(8) + bytes(4) + ip)  # in what a packet carries


@contextmanager
def watch_host() -> Iterator[dict[str, list[bytes]]]:
    """Frames on any of the host's interfaces: ``theirs`` with a guest's address, and one of the
    test's ``own``, which proves that they are seen. Without root nothing is."""
    seen: dict[str, list[bytes]] = {"own": [], "theirs": []}
    if not IS_ROOT:
        yield seen
        return
    marker = os.urandom(16)
    every = socket.ntohs(0x0003)  # ETH_P_ALL
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every) as watched:

        def watch() -> None:
            while not seen["own"]:
                frame = watched.recv(2048)
                if marker in frame:
                    seen["own"].append(frame)
                elif is_theirs(frame):
                    seen["theirs"].append(frame)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield seen
        finally:
            deadline = time.monotonic() + 60
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
                while watcher.is_alive() and time.monotonic() < deadline:
                    own.sendto(marker, ("127.0.0.1", 9))
                    watcher.join(0.5)
