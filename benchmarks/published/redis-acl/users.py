"""A Redis server whose users are saved in a file by ACL SAVE: LazyFS's case 11."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 30
USERS = "users.acl"


@contextmanager
def start_server() -> Iterator[Callable[..., str]]:
    """Gives a function that asks it. Raises OSError where it does not start."""
    # Its socket is in no recorded folder, whose path may be too long for one.
    with tempfile.TemporaryDirectory() as room:
        path = f"{room}/socket"
        options = {"port": "0", "unixsocket": path, "dir": ".", "save": "", "aclfile": USERS}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        server = subprocess.Popen(["redis-server", *words], stdout=subprocess.PIPE, text=True)
        try:
            await_socket(server, path)
            yield lambda *command: ask(path, *command)
        finally:
            server.kill()
            server.communicate()


def await_socket(server: "subprocess.Popen[str]", path: str) -> None:
    deadline = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if Path(path).exists():
            return
        time.sleep(0.002)
    raise OSError("the server does not start")


def ask(path: str, *command: str) -> str:
    argv = ["redis-cli", "-e", "-s", path, *command]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def write() -> None:
    with start_server() as server:
        server("ACL", "SETUSER", "joe", "on", ">test", "+get")
        server("ACL", "SAVE")
        print("joe", flush=True)


def check() -> None:
    try:
        with start_server() as server:
            users = server("ACL", "USERS").split()
    except (OSError, subprocess.CalledProcessError) as error:
        print(0, error)
        sys.exit(2)
    promises = Path(os.environ["DISKPROOF_ACKNOWLEDGED"]).read_text().split()
    if lost := len(set(promises) - set(users)):
        print(lost)
        sys.exit(1)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]]()
