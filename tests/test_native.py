"""Where native programs are looked for."""

import sys
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.process.native import find_native, native_folders, require_native


def test_the_installed_program_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for program in ("bin/diskproof-monitor", "libexec/diskproof/diskproof-agent"):
        path = tmp_path / program
        path.parent.mkdir(parents=True)
        path.touch()
        assert require_native(path.name) == path


def test_a_missing_program_is_an_error_with_the_command_that_makes_it() -> None:
    assert find_native("diskproof-no-such-program") is None
    with pytest.raises(HostError) as caught:
        require_native("diskproof-no-such-program")
    assert caught.value.hint == "make setup"
    assert all(str(folder) in caught.value.why for folder in native_folders())
