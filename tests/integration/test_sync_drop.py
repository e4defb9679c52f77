"""sync drop with real programs: what they are told, what is counted.

Requires gcc, seccomp with user notification (kernel 5.14) and the built diskproof-sync-drop.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from diskproof.process.start import run
from support.sync_drop import (
    DEADLINE,
    Build,
    drop,
    make_build,
    read_counts,
    sync_words,
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return make_build(tmp_path_factory.mktemp("programs"))


# What programs are told


@pytest.mark.parametrize("options", [(), ("--preload",), ("--strict",)], ids=str)
@pytest.mark.parametrize("linkage", ["dynamic", "static"])
def test_every_answer_is_the_kernels_own(
    tmp_path: Path, build: Build, linkage: str, options: Sequence[str]
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "dropped").mkdir()
    program = build(linkage)
    plain = run([str(program), str(tmp_path / "plain")], timeout=DEADLINE)
    counts = tmp_path / "counts"
    dropped = drop(
        "--quiet", "--json", counts, *options, "--", program, tmp_path / "dropped", cwd=tmp_path
    )
    assert dropped.text.splitlines() == plain.text.splitlines()
    assert len(plain.text.splitlines()) == 145
    assert dropped.returncode == 0
    if linkage == "static" and options == ("--preload",):
        assert read_counts(counts) == {}
    else:
        assert read_counts(counts) == {
            "fsync": 5,
            "fdatasync": 4,
            "sync": 2,
            "syncfs": 4,
            "msync": 4,
            "sync_file_range": 6,
            "open_with_o_sync": 4,
            "write_with_rwf_sync": 2,
        }


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
def test_nothing_is_known_of_what_was_closed(
    tmp_path: Path, build: Build, options: Sequence[str]
) -> None:
    program = build("closes")
    plain = run([str(program), str(tmp_path)], timeout=DEADLINE)
    dropped = drop("--quiet", *options, "--", program, tmp_path, cwd=tmp_path)
    assert dropped.text.splitlines() == plain.text.splitlines()
    assert plain.text.count("-1 9") == 14  # EBADF
    assert plain.text.count("-1 22") == 8  # EINVAL
    assert dropped.returncode == 0


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
def test_a_cancelled_thread_ends_in_each_call_that_may_end_it(
    tmp_path: Path, build: Build, options: Sequence[str]
) -> None:
    plain = run([str(build("cancel")), str(tmp_path / "f")], timeout=DEADLINE)
    assert plain.text.splitlines() == [f"{call} 1 1" for call in range(9)]
    dropped = drop("--quiet", *options, "--", build("cancel"), tmp_path / "f", cwd=tmp_path)
    assert dropped.text == plain.text


@pytest.mark.parametrize("name", ["threads", "static-threads"])
def test_every_sync_of_every_thread_is_counted(tmp_path: Path, build: Build, name: str) -> None:
    counts = tmp_path / "counts"
    assert drop("--json", counts, build(name), tmp_path / "f", cwd=tmp_path).returncode == 0
    assert read_counts(counts) == {"fsync": 2000}


def test_children_by_vfork_and_posix_spawn_are_covered(tmp_path: Path, build: Build) -> None:
    for options in [(), ("--preload",)]:
        counts = tmp_path / "counts"
        program = build("spawn")
        done = drop("--json", counts, *options, "--", program, tmp_path / "f", cwd=tmp_path)
        assert (done.returncode, read_counts(counts)) == (0, {"fsync": 2})


def test_32_bit_programs_are_covered(tmp_path: Path, build: Build) -> None:
    counts = tmp_path / "counts"
    done = drop("--quiet", "--json", counts, build("narrow"), tmp_path / "f", cwd=tmp_path)
    assert done.returncode == 0
    assert read_counts(counts) == {
        "fsync": 1,
        "fdatasync": 1,
        "sync": 1,
        "sync_file_range": 1,
        "open_with_o_sync": 1,
        "write_with_rwf_sync": 1,
    }


@pytest.mark.parametrize("restart", [(), ("restart",)], ids=str)
def test_opens_are_rewritten_under_a_storm_of_signals(
    tmp_path: Path, build: Build, restart: Sequence[str]
) -> None:
    done = drop("--json", "-", build("signals"), tmp_path / "f", *restart, cwd=tmp_path)
    assert done.returncode == 0
    counted = json.loads(done.text)["dropped"]["open_with_o_sync"]
    assert 200 <= counted <= 300


def test_io_uring_is_hidden_on_request_and_told_of_otherwise(tmp_path: Path, build: Build) -> None:
    if run([str(build("ring"))], timeout=DEADLINE).text != "0\n":
        pytest.skip("the kernel has no io_uring")
    assert drop("--strict", build("ring"), cwd=tmp_path).text == "38\n"
    seen = drop(build("ring"), cwd=tmp_path)
    assert seen.text == "0\n" and "1 io_uring set up: its syncs are real" in seen.error_text


# Where and when


def test_only_what_is_below_a_folder(tmp_path: Path) -> None:
    for name in ("in", "in/deep", "out", "inside-not"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path / "in")
    files = ["in/a", "in/deep/b", "out/c", "out/../in/d", "out/link/e", "inside-not/f"]
    done = drop("--json", "-", "--only", "in", "--", *sync_words(*files), cwd=tmp_path)
    told = json.loads(done.text)
    assert told["dropped"] == {"fsync": 4, "open_with_o_sync": 4}
    assert told["passed"] == 5


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
def test_the_first_are_let_through(tmp_path: Path, options: Sequence[str]) -> None:
    words = sync_words("a", "b", "c", "d")
    done = drop("--json", "-", "--after", "5", *options, "--", *words, cwd=tmp_path)
    told = json.loads(done.text)
    assert (told["dropped_total"], told["passed"]) == (4, 5)


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=str)
def test_a_file_switches_it_on_and_off(tmp_path: Path, options: Sequence[str]) -> None:
    program = """
import os
fd = os.open("data", os.O_RDWR | os.O_CREAT)
for round in range(6):
    if round in (1, 4): open("switch", "w").close()
    if round == 3: os.unlink("switch")
    os.fsync(fd)
"""
    words = ["--toggle", "switch", *options, "--", "/usr/bin/python3", "-I", "-S", "-c", program]
    told = json.loads(drop("--json", "-", *words, cwd=tmp_path).text)
    assert (told["dropped"], told["passed"]) == ({"fsync": 4}, 2)
