"""The accelerator probe on this very host, whatever it can do. Requires the built guest."""

import json
from pathlib import Path

import pytest

from diskproof.guest.ours.build import GuestFiles
from diskproof.host import accel
from diskproof.host.accel import AccelFacts, probe_accel


@pytest.fixture
def result(guest_files: GuestFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the probe keeps its result: a cache of its own, with the real guest."""
    monkeypatch.setattr(accel, "require_guest", lambda: guest_files)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "diskproof").mkdir()
    return tmp_path / "diskproof" / "accel.json"


@pytest.mark.skipif(not accel.KVM.exists(), reason="there is no /dev/kvm to probe")
def test_kvm_is_probed_once_and_anew_when_asked(result: Path) -> None:
    first = probe_accel()
    assert first.accel in ("kvm", "tcg")
    assert first.seconds < accel.PROBE_SECONDS + 5
    assert ("did not come up" in first.reason) == (first.accel == "tcg")
    assert "\n" not in first.reason
    assert probe_accel() == first

    kept = json.loads(result.read_text())
    result.write_text(json.dumps({**kept, "reason": "kept"}))
    assert probe_accel().reason == "kept"
    assert probe_accel(refresh=True).reason != "kept"

    result.write_text(json.dumps({**kept, "probe": "of another boot", "reason": "kept"}))
    assert probe_accel().reason != "kept"
    for damaged in ("", "[]", "{}", '{"probe": 1', '{"accel": "hvf"}'):
        result.write_text(damaged)
        assert probe_accel().accel == first.accel


def test_without_the_device_nothing_is_booted(
    result: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(accel, "KVM", tmp_path / "kvm")
    facts = probe_accel()
    assert facts == AccelFacts("tcg", f"{tmp_path / 'kvm'} does not exist", 0.0)
    assert not result.exists()
