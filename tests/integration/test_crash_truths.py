"""What each setting keeps and loses, on real runs: QEMU's block layer, a recorded folder, real
states, real checks. Requires root, /dev/fuse, qemu-storage-daemon and the native programs.

These are truths of the cache modes as QEMU documents them. A run that contradicts one is a finding
for docs/crash.md with its minimised trace, and no reason to change a test.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.crash.reproduce import reproduce
from diskproof.recording.log import read_frames
from diskproof.records.verdicts import CrashRun, Verdict
from diskproof.study.crash import CrashRules
from support.crashing import OF_FORM, RULES, execute_real, make_real_run
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]
MODES = ("none", "writeback", "writethrough", "directsync", "unsafe")
WRITE_THROUGH = ("writethrough", "directsync")


def by_fault(found: CrashRun) -> Mapping[str, Verdict]:
    assert found.failure is None, found.failure
    undecided = [verdict for verdict in found.verdicts if verdict.verdict == "undecided"]
    assert all(verdict.kept_so_far for verdict in undecided), found.verdicts
    return {verdict.fault: verdict for verdict in found.verdicts}


@pytest.mark.parametrize("form", ["raw", "qcow2"])
@pytest.mark.parametrize("cache", MODES)
def test_what_was_flushed_is_kept_by_all_but_unsafe(tmp_path: Path, cache: str, form: str) -> None:
    found = make_real_run(tmp_path, rules=OF_FORM[form], format=form, cache=cache)
    verdicts = by_fault(found)
    power = verdicts["power"]
    if cache == "unsafe":
        assert power.verdict in ("loses", "corrupts") and power.missing
        assert found.counts["flushes"] == 0
    else:
        assert (power.verdict, power.lost) == ("keeps", 0)
        assert found.counts["flushes"] >= found.counts["acknowledgements"] // 2
    assert power.states_checked > 100
    # What QEMU had been told is in the host's file, whatever the cache mode: only the host's
    # page cache can lose it, and that survives QEMU.
    assert verdicts["guest-kill"].verdict == "keeps"
    if form == "raw":
        assert verdicts["qemu-kill"].verdict == "keeps"
    lying = verdicts["lying-device"]
    assert lying.verdict in ("loses", "corrupts"), "a disk that lies loses under every mode"


@pytest.mark.parametrize("cache", [mode for mode in MODES if mode != "unsafe"])
def test_write_through_keeps_even_what_nobody_flushed(tmp_path: Path, cache: str) -> None:
    """The client sends no flush and takes each completed write for a promise."""
    verdicts = by_fault(make_real_run(tmp_path, durable="write", format="raw", cache=cache))
    expected = "keeps" if cache in WRITE_THROUGH else "loses"
    assert verdicts["power"].verdict == expected
    assert verdicts["qemu-kill"].verdict == "keeps"


@pytest.mark.parametrize("durable", ["flush", "write"])
@pytest.mark.parametrize("writer", ["ledger", "sqlite"])
def test_a_program_on_the_host_keeps_what_it_syncs(
    tmp_path: Path, writer: str, durable: str
) -> None:
    found = by_fault(make_real_run(tmp_path, writer, durable, frontend="host"))
    power = found["power"]
    if durable == "flush":  # a busy host may not come to all that decides of a database
        assert power.verdict == "keeps" or (power.kept_so_far and writer == "sqlite")
    else:
        assert power.verdict in ("loses", "corrupts")
    assert found["lying-device"].verdict in ("loses", "corrupts")
    assert "guest-kill" not in found


@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_a_loss_can_be_made_again_and_is_the_smallest(tmp_path: Path, form: str) -> None:
    found = make_real_run(tmp_path, rules=OF_FORM[form], format=form, cache="unsafe")
    power = by_fault(found)["power"]
    again = reproduce(found, "power", tmp_path / "state")
    assert again.loss is not None and again.loss.lost > 0
    assert set(power.missing) == {each.sequence for each in again.missing}
    assert all(f" of disk.{form} at " in text for text in again.told), again.told
    if form == "qcow2":
        return
    assert (tmp_path / "state" / "disk.raw").stat().st_size == CrashRules.size
    # One missing write is enough to lose something: no smaller loss exists.
    assert len(power.missing) == 1
    kinds = [event.kind for event in power.timeline]
    assert kinds[-1] == "cut" and "acknowledge" in kinds
    assert {"missing"} <= {event.state for event in power.timeline if event.kind == "write"}


def test_a_folder_of_temporary_files_that_is_closed_to_others_changes_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU's programs open states as somebody without rights, who may not enter root's folders."""
    few = replace(RULES, records=16, states=200, explore_seconds=60.0)
    with tempfile.TemporaryDirectory(prefix="closed-") as closed:  # mode 0700
        monkeypatch.setenv("TMPDIR", closed)
        monkeypatch.setattr(tempfile, "tempdir", None)  # looked up anew
        found = execute_real(tmp_path, "ledger", ("power",), few, format="qcow2", cache="none")
        assert list(Path(closed).iterdir()) == []
    power = by_fault(found)["power"]
    assert power.states_checked > 10 and power.lost == 0
    assert power.verdict == "keeps" or power.kept_so_far, power


def test_the_log_of_a_run_is_kept_whole(tmp_path: Path) -> None:
    found = make_real_run(tmp_path, format="raw", cache="none")
    log = next(each for each in found.artefacts if each.name == "crash.log")
    (tmp_path / "log").write_bytes(log.content)
    frames = list(read_frames(tmp_path / "log"))
    assert sum(f.kind == 9 for f in frames) >= found.counts["writes"] >= 48
    assert [name for name, _ in found.phases][:3] == ["create", "record", "read_log"]
