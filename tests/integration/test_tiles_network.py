"""The guests' network on the real kernel: what it is made of, who can see it, when it is gone.

Requires the built native programs and iproute2; a bridge also root and /dev/net/tun.
"""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.process.run_user import FORMER, require_run_user
from diskproof.process.start import find_tool, join_network_args, run
from diskproof.tiles.network import LOG, Network, choose_kind, start_network

SEATS = [(1, 1), (1, 2), (2, 1)]
DEADLINE = 30.0
MAX_FRAME = (64 << 10) + 4096
IS_ROOT = os.geteuid() == 0
OWNER = """
import os, sys
from pathlib import Path
from diskproof.tiles.network import start_network
kind, user = sys.argv[1], int(sys.argv[2])
if os.geteuid() != user:
    os.setgroups([]), os.setgid(user), os.setuid(user)
with start_network(Path.cwd(), kind, [(1, 1), (1, 2)]) as network:
    print(network.kind, network.namespace, *network.pids, flush=True)
    sys.stdin.read()
"""

needs_bridge = pytest.mark.skipif(
    not IS_ROOT or not Path("/dev/net/tun").exists() or find_tool("ip") is None,
    reason="a bridge takes root, /dev/net/tun and iproute2",
)


@contextmanager
def start_owner(folder: Path, kind: str, user: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with a network, and what it says of it."""
    argv = [sys.executable, "-c", OWNER, kind, str(user)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=folder, stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout
        try:
            yield owner, owner.stdout.readline().strip()
        finally:
            owner.kill()


def interfaces(namespace: Path | None = None) -> list[str]:
    listed = run([*join_network_args(namespace), "ip", "-brief", "link"], timeout=30).text
    names = (line.split()[0].partition("@")[0] for line in listed.splitlines())
    return [name for name in names if not name.startswith("dp")]  # another test's


# -- the bridge ---------------------------------------------------------------------------------


@needs_bridge
def test_the_bridge_is_in_a_network_of_its_own(tmp_path: Path) -> None:
    before = interfaces()
    with start_network(tmp_path, "auto", SEATS) as network:
        assert network.kind == "bridge" and network.namespace is not None
        namespace = Path(f"/proc/{os.getpid()}/fd/{network.namespace}")
        assert interfaces(namespace) == ["lo", "bridge", "tap1", "tap2", "tap3"]
        inside = join_network_args(namespace)
        assert run([*inside, "ip", "-brief", "address"], timeout=30).text.count(".") == 0
        assert run([*inside, "ip", "route"], timeout=30).text == ""
        members = run([*inside, "bridge", "link"], timeout=30).text
        assert members.count("master bridge state forwarding") == len(SEATS)
        assert interfaces() == before
        assert namespace.stat().st_ino not in processes_networks()


def processes_networks() -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(entry.stat().st_ino)
        except OSError:  # it has ended meanwhile
            continue
    return found


@needs_bridge
@pytest.mark.parametrize("how", ["block", "kill"])
def test_nothing_of_the_bridge_outlives_its_owner(how: str, tmp_path: Path) -> None:
    """A witness tells: the other end of a cable into the network goes when the network goes."""
    before = interfaces()
    with start_owner(tmp_path, "bridge", 0) as (owner, told):
        kind, number = told.split()
        assert kind == "bridge"
        with start_witness(f"/proc/{owner.pid}/fd/{number}") as wait_gone:
            if how == "kill":
                os.kill(owner.pid, signal.SIGKILL)
            else:
                assert owner.stdin
                owner.stdin.close()
            assert owner.wait(DEADLINE) == (-signal.SIGKILL if how == "kill" else 0)
            wait_gone()
    assert interfaces() == before


@contextmanager
def start_witness(namespace: str) -> Iterator[Callable[[], None]]:
    """A cable from a third network into ``namespace``; gives what waits for its end."""
    argv = ["unshare", "--net", "--", "ip", "monitor", "link"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as monitor:
        assert monitor.stdout
        stream = monitor.stdout.fileno()
        try:
            third = Path(f"/proc/{monitor.pid}/ns/net")
            while third.readlink() == Path("/proc/self/ns/net").readlink():
                assert monitor.poll() is None
            cable = ["ip", "link", "add", "witness", "type", "veth", "peer", "name", "inside"]
            run([*join_network_args(third), *cable, "netns", namespace], timeout=30)
            assert interfaces(third) == ["lo", "witness"]

            def wait_gone() -> None:
                said = b""
                while b"Deleted" not in said:
                    assert select.select([stream], [], [], DEADLINE)[0], said
                    said += os.read(stream, 4096)
                assert interfaces(third) == ["lo"]

            yield wait_gone
        finally:
            monitor.kill()


# -- the switch ---------------------------------------------------------------------------------


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Network]:
    with start_network(tmp_path, "switch", SEATS) as network:
        yield network


@contextmanager
def cables(network: Network) -> Iterator[list[socket.socket]]:
    """The guests' ends."""
    ends = [socket.socket(fileno=os.dup(network.port(*seat).fd)) for seat in SEATS]
    for end in ends:
        end.settimeout(DEADLINE)
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


def frame(target: int, source: int, content: bytes = b"hello") -> bytes:
    body = station(target) + station(source) + b"\x08\x00" + content
    return struct.pack(">I", len(body)) + body


def station(number: int) -> bytes:
    return b"\xff" * 6 if number == 0 else bytes([0x52, 0x54, 0, 0, 0, number])


def receive(end: socket.socket) -> bytes:
    prefix = end.recv(4, socket.MSG_WAITALL)
    return prefix + end.recv(struct.unpack(">I", prefix)[0], socket.MSG_WAITALL)


def test_the_switch_learns_where_stations_are(switch: Network) -> None:
    with cables(switch) as (one, two, three):
        one.sendall(frame(0, 1))
        assert receive(two) == receive(three) == frame(0, 1)
        two.sendall(frame(1, 2, b"answer"))
        assert receive(one) == frame(1, 2, b"answer")
        one.sendall(frame(2, 1, b"known") + frame(0, 1, b"all"))
        assert receive(two) == frame(2, 1, b"known")
        assert receive(two) == receive(three) == frame(0, 1, b"all"), "three saw what was for two"


def test_a_guest_that_breaks_the_protocol_loses_its_port_only(
    switch: Network, tmp_path: Path
) -> None:
    with cables(switch) as (one, two, three):
        one.sendall(struct.pack(">I", MAX_FRAME + 1) + b"x" * 64)
        while one.recv(1 << 16):
            pass
        two.sendall(struct.pack(">I", 5) + b"short" + frame(0, 2))
        assert receive(three) == frame(0, 2)
    assert f"announced a frame of {MAX_FRAME + 1} bytes" in (tmp_path / LOG).read_text()


def test_a_guest_that_fetches_nothing_does_not_stop_the_others(switch: Network) -> None:
    """16 MiB for one that is deaf: the switch drops most, holds little and serves the rest."""
    with cables(switch) as (one, _, three):
        for number in range(16 << 8):
            one.sendall(frame(0, 1, bytes(4096 - 32)))
            receive(three)
            if number % 512 == 0:
                three.sendall(frame(1, 3))
                assert receive(one) == frame(1, 3)
        status = Path(f"/proc/{switch.pids[0]}/status").read_text()
        (resident,) = [line.split()[1] for line in status.splitlines() if "VmHWM" in line]
        assert int(resident) < 8 << 10, "KiB"


def test_the_switch_has_no_privileges_and_no_network(switch: Network) -> None:
    (pid,) = switch.pids
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    assert fields["NoNewPrivs"] == "1"
    if IS_ROOT:
        assert fields["Uid"].split() == [str(require_run_user())] * 4
        assert int(fields["CapEff"], 16) == 0
        assert interfaces(Path(f"/proc/{pid}/ns/net")) == ["lo"]


@pytest.mark.parametrize("user", sorted({os.geteuid(), FORMER if IS_ROOT else os.geteuid()}))
def test_the_switch_of_any_user_ends_with_its_owner(user: int, public: Path) -> None:
    public.chmod(0o777)
    kind = "switch" if user == 0 else "auto"
    with start_owner(public, kind, user) as (owner, told):
        assert told.startswith("switch None ")
        handle = os.pidfd_open(int(told.split()[2]))
        try:
            os.kill(owner.pid, signal.SIGKILL)
            assert select.select([handle], [], [], DEADLINE)[0]
        finally:
            os.close(handle)


# -- what cannot be -----------------------------------------------------------------------------


def test_more_guests_than_addresses_are_refused(tmp_path: Path) -> None:
    for seats in ([(256, 1)], [(1, 255)], [(0, 1)], [(1, place) for place in range(1, 252)]):
        with pytest.raises(HostError, match="too many"), start_network(tmp_path, "auto", seats):
            pass


def test_a_bridge_takes_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_kind("auto") == "switch"
    with pytest.raises(HostError) as caught:
        choose_kind("bridge")
    assert 'network = "switch"' in caught.value.hint
