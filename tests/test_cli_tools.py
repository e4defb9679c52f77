"""Verbs that hand over to native programs: who takes our place, with what, and what it inherits.

A shell stands where the native program would be: it too is a program that was installed.
"""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from diskproof import __version__
from diskproof.cli.handover import PROGRAMS, is_ours
from diskproof.cli.monitor_page_verb import PageWish, parse_page_options
from diskproof.cli.tool_verbs import find_options
from diskproof.errors import UsageError
from diskproof.process.native import require_native
from diskproof.process.start import run
from support.simulated_stores import fill, simulated_cells

ROOT = Path(__file__).parent.parent
CHILD = """
import sys
sys.prefix = sys.argv[1]
from diskproof import __version__
from diskproof.cli.handover import hand_over
hand_over(sys.argv[2:])
print("came back", "typer" in sys.modules, "pathlib" in sys.modules)
"""


def handed_over(prefix: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a command line does in an installation where every native program is a shell."""
    folder = prefix / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS.values():
        if not (folder / program).exists():
            (folder / program).symlink_to("/bin/sh")
    argv = [sys.executable, "-c", CHILD, str(prefix), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("verb", PROGRAMS, ids=" ".join)
def test_arguments_arrive_unchanged_and_the_exit_code_is_the_programs(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    script = 'printf "<%s>" "$0" "$@"; exit 7'
    odd = ["--", "--version", "", "a b", "--json", "*", "é", "-"]
    done = handed_over(tmp_path, *verb, "-c", script, *odd)
    assert done.stdout == "".join(f"<{each}>" for each in odd)
    assert done.returncode == 7


def test_a_signal_ends_the_command_as_it_would_without_us(tmp_path: Path) -> None:
    done = handed_over(tmp_path, "nocache", "-c", "kill -KILL $$")
    assert done.returncode == -signal.SIGKILL


def test_who_cannot_be_replaced_hears_signals_as_before() -> None:
    code = """
import signal
from diskproof.cli.handover import become
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
try:
    become("/not/there", [])
except FileNotFoundError:
    print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"%d\n" % signal.SIGTERM


def test_no_signal_stays_ignored(tmp_path: Path) -> None:
    """Python ignores SIGPIPE: a command that inherits that never ends when its reader is gone."""
    done = handed_over(tmp_path, "sync", "drop", "-c", "grep SigIgn /proc/$$/status")
    ignored = int(done.stdout.split()[1], 16)
    before = int(
        subprocess.run(
            ["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True
        ).stdout.split()[1],
        16,
    )
    assert ignored & ~before == 0
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored & (1 << (number - 1))


@pytest.mark.parametrize(
    "arguments", [[], ["sync"], ["sync", "--help"], ["sync", "drip"], ["run", "nocache"]]
)
def test_all_else_comes_back_without_heavy_imports(tmp_path: Path, arguments: list[str]) -> None:
    assert handed_over(tmp_path, *arguments).stdout == "came back False False\n"


def test_a_page_of_the_monitor_is_our_own_job(tmp_path: Path) -> None:
    for ours in (["--html", "x"], ["-c", "--from=rec.jsonl"], ["--parquet=x", "1", "5"], ["-h"]):
        assert is_ours(ours)
        assert "came back" in handed_over(tmp_path, "monitor", *ours).stdout
    assert not is_ours(["-c", "--json", "html", "1"])
    assert handed_over(tmp_path, "monitor", "-c", "exit 3").returncode == 3


def test_our_options_are_taken_out_of_a_command_line() -> None:
    wish = parse_page_options(["-c", "--html", "a.html", "-D", "sda", "--from=r.jsonl", "1"])
    assert wish == PageWish(Path("a.html"), None, Path("r.jsonl"), ("-c", "-D", "sda", "1"))
    for wrong in (["--html"], ["--html="], ["--html", "a", "--html=b"]):
        with pytest.raises(UsageError, match="names one file"):
            parse_page_options(wrong)


def test_every_program_is_one_that_we_build() -> None:
    manifests = (ROOT / "native").glob("*/*/Cargo.toml")
    built = {tomllib.loads(path.read_text())["package"]["name"] for path in manifests}
    assert set(PROGRAMS.values()) <= built


@pytest.mark.parametrize(
    "name", [*sorted({*PROGRAMS.values()}), "diskproof-states", "diskproof-sync-ways"]
)
def test_a_program_has_the_version_of_the_whole(name: str) -> None:
    argv = [str(require_native(name)), "--version"]
    assert run(argv, timeout=30).text == f"{name} {__version__}\n"


def test_options_are_read_from_a_help_text() -> None:
    text = """Usage: diskproof-x [OPTIONS] -- COMMAND

Options:
  -a, --after <N>    Drop from the Nth on, see --only
      --only <PATH>  Only below PATH
  -q                 Say nothing
  -h, --help         Print help
Examples:
  diskproof x --wrong
"""
    assert find_options(text) == ["-a", "--after", "--only", "-q", "-h", "--help"]


def complete(words: str) -> list[str]:
    """What bash would be offered for the last word."""
    environment = os.environ | {
        "_DISKPROOF_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("diskproof")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    return done.stdout.split()


def test_verbs_are_completed() -> None:
    assert complete("diskproof syn") == ["sync"]
    assert complete("diskproof sync ") == ["drop", "trace"]
    assert complete("diskproof noc") == ["nocache"]
    assert complete("diskproof mon") == ["monitor"]


def test_the_last_of_several_rules_is_completed() -> None:
    offered = complete("diskproof crash --profiles xfs,ext4-")
    assert offered == ["xfs,ext4-journal", "xfs,ext4-writeback"]


def test_managers_and_workloads_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISKPROOF_STORE", str(fill(tmp_path / "s.sqlite", simulated_cells())))
    assert complete("diskproof advise --for prox") == ["proxmox"]
    assert complete("diskproof advise --for virt") == ["virt-install"]
    assert complete("diskproof advise --workload ra") == ["rand-read"]
    assert complete("diskproof advise sim") == ["simulated"]


def test_options_of_the_native_program_are_completed() -> None:
    assert {"--html", "--csv", "--json"} <= set(complete("diskproof monitor --"))
    assert complete("diskproof monitor -c --csv f --js") == ["--json"]
