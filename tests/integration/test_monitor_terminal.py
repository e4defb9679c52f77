"""The monitor in a terminal: widths, headers as it scrolls, colours, another size."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from support.watching import DEADLINE, argv

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Screen:
    """The other end of a terminal that the monitor writes to."""

    child: subprocess.Popen[bytes]
    master: int
    text: str = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # The kernel tells only those for whom it is the controlling terminal.
        self.child.send_signal(signal.SIGWINCH)

    def read(self) -> bool:
        """Whether there was more."""
        ready, _, _ = select.select([self.master], [], [], DEADLINE)
        assert ready, "the monitor is silent"
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end was closed
            return False
        self.text += data.decode().replace("\r\n", "\n")
        return bool(data)

    def read_all(self) -> list[str]:
        while self.read():
            pass
        return self.text.splitlines()


@contextmanager
def screen(
    *arguments: str, columns: int = 80, rows: int = 24, env: dict[str, str] | None = None
) -> Iterator[Screen]:
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **(env or {})}
        with subprocess.Popen(
            argv(*arguments), stdout=slave, stderr=subprocess.PIPE, env=environment
        ) as child:
            os.close(slave)
            try:
                yield Screen(child, master)
            finally:
                child.kill()
    finally:
        os.close(master)


def test_eighty_columns_are_kept_and_what_is_cut_off_is_told() -> None:
    with screen("-tcdngymlps", "--psi", "0.02", "3") as shown:
        lines = [ESCAPE.sub("", line) for line in shown.read_all()]
        assert shown.child.stderr is not None
        said = shown.child.stderr.read().decode()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80 and lines[0].endswith(">")
    assert "too narrow" in said and "pressure" in said and "total cpu usage" not in said
    with screen("-c", "0.01", "1", columns=5) as shown:
        assert "usr" in "".join(shown.read_all()), "one group is shown in any terminal"


def test_the_default_of_dstat_fits_eighty_columns() -> None:
    with screen("0.01", "2") as shown:
        lines = [ESCAPE.sub("", line) for line in shown.read_all()]
    assert "system" in lines[0] and ">" not in lines[0]
    assert max(map(len, lines)) <= 80


def test_the_header_comes_again_as_the_terminal_scrolls() -> None:
    with screen("-c", "--nocolor", "0.01", "40", rows=12) as shown:
        lines = shown.read_all()
    headers = [at for at, line in enumerate(lines) if "usr" in line]
    assert len(lines) - 2 * len(headers) == 40
    gaps = {b - a for a, b in zip(headers, headers[1:], strict=False)}
    assert gaps and max(gaps) <= 12
    with screen("-c", "--noheaders", "0.01", "40", rows=12) as shown:
        assert sum("usr" in line for line in shown.read_all()) == 1


@pytest.mark.parametrize(
    ("arguments", "env", "coloured"),
    [
        ([], {}, True),
        (["--nocolor"], {}, False),
        (["--bw"], {}, False),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"TERM": "dumb"}, False),
    ],
)
def test_colours(arguments: list[str], env: dict[str, str], coloured: bool) -> None:
    with screen("-cd", *arguments, "0.01", "1", env=env) as shown:
        assert ("\x1b[" in "".join(shown.read_all())) is coloured


def test_a_terminal_of_another_size_is_used_as_it_is() -> None:
    with screen("-cdngym", "--nocolor", "0.05", columns=200, rows=50) as shown:
        while "\n" not in shown.text:
            assert shown.read()
        shown.resize(60, 20)

        def narrow() -> list[str]:
            """All lines from the first header that was cut off."""
            lines = shown.text.splitlines()[:-1]
            cut = [at for at, line in enumerate(lines) if line.endswith(">")]
            return lines[cut[0] :] if cut else []

        while len(narrow()) < 4:
            assert shown.read()
        assert all(len(line) <= 60 for line in narrow())


def test_a_terminal_that_goes_away_ends_it() -> None:
    with screen("-c", "3600") as shown:
        os.dup2(os.open(os.devnull, os.O_RDWR), shown.master)
        assert shown.child.wait(DEADLINE) == 0


def test_fractions_and_clocks() -> None:
    with screen("-tT", "-c", "--float", "--nocolor", "0.05", "2", env={"TZ": "UTC"}) as shown:
        lines = shown.read_all()
    day, epoch, cpu = lines[2].split("|")
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d", day.strip())
    assert re.fullmatch(r"\d{10}\.\d{3}", epoch.strip())
    assert re.search(r"\d\.\d", cpu)
    seconds = int(float(epoch)) % 60
    assert int(day.strip()[-2:]) == seconds
