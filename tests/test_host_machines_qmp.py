"""A running machine's monitor that lies: a process that calls itself QEMU, or one that a guest has
taken over. Requires Linux (the kernel's list of sockets)."""

import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.host.machines.qemu_answers import find_block, read_block
from diskproof.host.machines.qemu_process import QemuProcess
from diskproof.host.machines.qmp_socket import SECONDS, ask_disks
from diskproof.records.virtual_machines import MachineDisk
from support.patience import in_time

GREETING = (
    b'{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}, "capabilities": []}}'
)
Answer = Callable[[str], object]


@contextmanager
def lying(answer: Answer) -> Iterator[QemuProcess]:
    """This process, as a QEMU whose monitor answers each command so."""
    with tempfile.TemporaryDirectory(prefix="qmp-", dir="/tmp") as folder:
        path = str(Path(folder) / "free.qmp")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            thread = threading.Thread(target=serve, args=(listener, answer))
            thread.start()
            yield QemuProcess(os.getpid(), ("qemu", "-qmp", f"unix:{path},server=on"))
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
    assert not thread.is_alive()


def serve(listener: socket.socket, answer: Answer) -> None:
    with suppress(OSError, ValueError):
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as requests:
            connection.sendall(GREETING + b"\r\n")
            decoder, pending = json.JSONDecoder(), ""
            while chunk := requests.read1():
                pending += chunk.decode()
                with suppress(json.JSONDecodeError):
                    request, _ = decoder.raw_decode(pending)
                    pending = ""
                    known = request["execute"] == "qmp_capabilities"
                    said = {} if known else answer(request["execute"])
                    reply = {"return": said, "id": request.get("id")}
                    connection.sendall(json.dumps(reply).encode() + b"\r\n")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
_KEYS = ("qdev", "inserted", "device", "file", "drv", "cache", "node-name", "detect_zeroes", "fds")
_CACHE = st.dictionaries(st.sampled_from(["writeback", "direct", "no-flush"]), _JSON)
_ITEM = st.dictionaries(st.sampled_from(_KEYS), _JSON | _CACHE)
_ITEMS = st.lists(
    st.builds(lambda item, inside: item | {"inserted": inside}, _ITEM, _ITEM)
    | _ITEM
    | st.fixed_dictionaries(
        {"fdset-id": _JSON, "fds": st.lists(st.fixed_dictionaries({"fd": _JSON}))}
    )
    | _JSON,
    max_size=4,
)


@settings(max_examples=60)
@given(_ITEMS | _JSON, _ITEMS, _ITEMS, _JSON)
def test_whatever_a_machine_says_is_a_disk_or_nothing(
    blocks: object, nodes: object, fdsets: object, rest: object
) -> None:
    said = {
        "query-block": blocks, "query-named-block-nodes": nodes, "query-fdsets": fdsets,
    }  # fmt: skip
    with lying(lambda command: said.get(command, rest)) as process:
        answers = ask_disks(process, "")
    if answers is None:
        return
    disk = MachineDisk("vda", "/x")
    found = find_block(answers, disk)
    for block in [*answers.blocks, *filter(None, [found])]:
        assert isinstance(read_block(disk, block, answers), MachineDisk)


def test_a_machine_with_disks_without_end_is_given_up() -> None:
    """Each is answered at once, and all together would take minutes."""
    blocks = [{"qdev": f"d{number}", "inserted": {}} for number in range(50_000)]
    answer = {"query-block": blocks, "query-named-block-nodes": [], "query-fdsets": []}
    with lying(lambda command: answer.get(command, "x")) as process:
        assert in_time(SECONDS + 5, lambda: ask_disks(process, "")) is None
