"""A native program and its command have the signals that a shell would give them, nothing of ours.

Requires root (tracepoints, cgroups), the native programs and the start script.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

import pytest

from diskproof.process.native import require_native

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tracepoints and cgroups need root")
DISKPROOF = f"{sys.prefix}/bin/diskproof"
NOCACHE = [str(require_native("diskproof-nocache"))]
DROP, TRACE = ["sync", "drop", "--quiet"], ["sync", "trace", "-o", "/dev/null"]
WAYS = {
    "nocache": [DISKPROOF, "nocache"],
    "cgroup": [DISKPROOF, "nocache", "--strategy", "cgroup"],
    "nocache in itself": [DISKPROOF, "nocache", "--", DISKPROOF, "nocache"],
    "without diskproof": NOCACHE,
    "filter": [DISKPROOF, *DROP],
    "library": [DISKPROOF, *DROP, "--preload"],
    "drop in itself": [DISKPROOF, *DROP, "--", DISKPROOF, *DROP],
    **{each: [DISKPROOF, *TRACE, "--by", each] for each in ("tracepoints", "preload", "ptrace")},
}
SHOW = "grep -E '^Sig(Blk|Ign)' /proc/self/status; env | grep DISKPROOF_HELD; exit 5"


def shown(way: list[str], blocked: Iterable[int], ignored: Iterable[int]) -> str:
    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    argv = [*way, "sh", "-c", SHOW]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, preexec_fn=prepare, check=False)
    assert done.returncode == 5
    return done.stdout


@pytest.mark.parametrize(
    ("blocked", "ignored"),
    [
        ([], []),
        ([], [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT]),  # nohup, and a shell's background
        ([signal.SIGTERM, signal.SIGUSR1], [signal.SIGHUP]),
    ],
    ids=["plain", "ignored", "blocked"],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_command_has_the_signals_of_who_called(
    way: str, blocked: list[int], ignored: list[int]
) -> None:
    plain = shown([], blocked, ignored)
    assert len(plain.splitlines()) == 2
    assert shown([*WAYS[way], "--"], blocked, ignored) == plain


def test_what_has_begun_is_not_said_to_begin() -> None:
    """The monitor does not wait for this signal: it ends by it as ever."""
    argv = [DISKPROOF, "monitor", "--csv", "-", "-c", "0.05"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as monitor:
        assert monitor.stdout is not None and monitor.stdout.readline()
        monitor.send_signal(signal.SIGHUP)
        assert monitor.communicate()[1] == b""
    assert monitor.returncode == -signal.SIGHUP
