"""What the processor, the KVM module and /dev/kvm say, and what it means for guests of guests."""

import os
from pathlib import Path

import pytest

from diskproof.host import nested
from diskproof.host.nested import NestedState, find_kvm_obstacle, judge_nested, parse_flags

GONE = "/dev/kvm: No such file or directory"


@pytest.mark.parametrize(
    ("state", "ok", "what", "hint"),
    [
        (NestedState("vmx", False, "kvm_intel", "Y", ""), "yes", "0.8 s", "accel.toml"),
        (NestedState("svm", True, "kvm_amd", "1", ""), "yes", "a guest already", "accel.toml"),
        (NestedState("vmx", False, "kvm_intel", "Y", GONE), "limited", GONE, "adduser"),
        (
            NestedState("svm", False, "kvm_amd", "0", ""),
            *("no", "kvm_amd has it switched off; without it", "modprobe kvm_amd nested=1"),
        ),
        (NestedState("vmx", False, "", "", GONE), "no", "not loaded", "modprobe kvm_intel"),
        (NestedState("", True, "", "", GONE), "no", "neither vmx nor svm", "on the host below"),
        (NestedState("", False, "", "", GONE), "no", "2.8 s instead of 0.8", "in the firmware"),
    ],
)
def test_every_state_has_its_line(state: NestedState, ok: str, what: str, hint: str) -> None:
    finding = judge_nested(state)
    assert finding.ok == ok
    assert what in finding.what
    assert "published" in finding.what or ok == "limited"  # never as if measured here
    assert hint in finding.hint


def test_flags_are_those_of_the_first_processor() -> None:
    text = (
        "processor\t: 0\nflags\t\t: fpu vmx\n\nprocessor\t: 1\nflags\t\t: svm\nbugs\t: hypervisor"
    )
    assert parse_flags(text) == {"fpu", "vmx"}
    assert parse_flags("CPU implementer : 0x41") == frozenset()


def test_what_is_not_kvm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, why in (
        (tmp_path / "none", "No such file or directory"),
        (Path(os.devnull), "does not answer"),
    ):
        monkeypatch.setattr(nested, "KVM", path)
        assert why in find_kvm_obstacle()


def test_this_host_has_a_finding() -> None:
    finding = nested.examine_nested()
    assert (finding.name, finding.needed) == ("nested KVM", False)
    assert finding.hint
