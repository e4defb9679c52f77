"""KSM's settings for the length of a run, in a folder that looks like the kernel's.

The kernel's own are switched in tests/vm/test_tiles_lab.py.
"""

import json
from pathlib import Path

import pytest

from diskproof.errors import HostError, RunFailure
from diskproof.host.ksm import NOTE, read_note, restore_held_ksm, start_ksm

BEFORE = {"advisor_mode": "none", "pages_to_scan": "100", "sleep_millisecs": "20", "run": "0"}


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    folder = tmp_path / "ksm"
    folder.mkdir()
    for name, value in BEFORE.items():
        (folder / name).write_text(f"{value}\n")
    return folder


@pytest.fixture
def note(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def read(kernel: Path) -> dict[str, str]:
    return {name: (kernel / name).read_text().strip() for name in BEFORE}


def test_on_for_a_block_and_then_as_it_was(kernel: Path, note: Path) -> None:
    with start_ksm(note, "on", kernel) as checks:
        assert read(kernel) == {**BEFORE, "pages_to_scan": "1000", "run": "1"}
        assert [(check.name, check.ok) for check in checks][-1] == ("ksm: run", True)
        assert read_note(note) == BEFORE
    assert read(kernel) == BEFORE
    assert list(note.iterdir()) == []


def test_off_where_it_was_on(kernel: Path, note: Path) -> None:
    (kernel / "run").write_text("1\n")
    with start_ksm(note, "off", kernel):
        assert read(kernel) == BEFORE
    assert read(kernel) == {**BEFORE, "run": "1"}


def test_an_adviser_is_told_to_rest_and_comes_back(kernel: Path, note: Path) -> None:
    (kernel / "advisor_mode").write_text("none [scan-time]\n")
    with start_ksm(note, "on", kernel):
        assert read(kernel)["advisor_mode"] == "none"
    assert read(kernel)["advisor_mode"] == "scan-time"


def test_a_kernel_without_an_adviser(kernel: Path, note: Path) -> None:
    (kernel / "advisor_mode").unlink()
    with start_ksm(note, "on", kernel) as checks:
        assert [check.name for check in checks][0] == "ksm: pages_to_scan"


def test_restored_when_the_run_fails(kernel: Path, note: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with start_ksm(note, "on", kernel):
            raise ZeroDivisionError
    assert read(kernel) == BEFORE


def test_what_somebody_else_changes_meanwhile_is_told_and_put_right(
    kernel: Path, note: Path
) -> None:
    with pytest.raises(RunFailure, match="changed during the run") as caught:
        with start_ksm(note, "on", kernel):
            (kernel / "run").write_text("2\n")
    assert caught.value.why == "ksm: run is 2"
    assert read(kernel) == BEFORE


def test_one_run_at_a_time(kernel: Path, note: Path, tmp_path: Path) -> None:
    with start_ksm(note, "on", kernel):
        with pytest.raises(HostError, match="in use by another run"):
            with start_ksm(tmp_path, "off", kernel):
                pytest.fail("it was let in")
        assert "another run" in restore_held_ksm(note, kernel)
        assert read(kernel)["run"] == "1"


def test_a_dead_owners_settings_are_restored_from_its_note(kernel: Path, note: Path) -> None:
    (note / NOTE).write_text(json.dumps(BEFORE))
    (kernel / "run").write_text("1\n")
    (kernel / "pages_to_scan").write_text("1000\n")
    assert restore_held_ksm(note, kernel) == ""
    assert read(kernel) == BEFORE
    assert list(note.iterdir()) == []


@pytest.mark.parametrize(
    "text", ['{"../../x": "1"}', '{"run": "1\\n2"}', "[]", "no json", '{"run": {"a": 1}}']
)
def test_a_note_that_is_not_ours_changes_nothing(kernel: Path, note: Path, text: str) -> None:
    (note / NOTE).write_text(text)
    assert restore_held_ksm(note, kernel) == ""
    assert read(kernel) == BEFORE


def test_a_link_in_place_of_a_note_is_not_followed(kernel: Path, note: Path) -> None:
    (note / "elsewhere").write_text('{"run": "1"}')
    (note / NOTE).symlink_to(note / "elsewhere")
    assert restore_held_ksm(note, kernel) == ""
    assert read(kernel) == BEFORE


def test_a_kernel_without_ksm(note: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no KSM"):
        with start_ksm(note, "on", tmp_path / "nowhere"):
            pytest.fail("it was let in")
