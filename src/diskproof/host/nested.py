"""Whether guests of this host can be hosts (nested virtualisation), and what that costs."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from diskproof.host.accel import KVM
from diskproof.records import Finding

NAME = "nested KVM"
MODULES = {"vmx": "kvm_intel", "svm": "kvm_amd"}
KVM_GET_API_VERSION = 0xAE00  # linux/kvm.h: _IO(0xAE, 0)
KVM_API_VERSION = 12
# From published runs, not from this host: docs/doctor.md.
_WITH = "published runs of 2012 took 0.8 s for a small compile in a guest of a guest"
_WITHOUT = (
    "without it guests of guests are emulated: 2.8 s instead of 0.8 in published runs of 2012"
)
_FIRMWARE = "switch on virtualisation (VT-x, AMD-V) in the firmware"
_BELOW = "on the host below: nested=1 for its KVM module, and -cpu host for this guest"


@dataclass(frozen=True)
class NestedState:
    """``flag`` is the processor's (``vmx``, ``svm``, or empty), ``is_guest`` whether a hypervisor
    runs this host, ``parameter`` the KVM module's ``nested`` (empty: no such module is loaded),
    ``kvm_obstacle`` why /dev/kvm cannot be used."""

    flag: str
    is_guest: bool
    module: str
    parameter: str
    kvm_obstacle: str


def examine_nested() -> Finding:
    return judge_nested(read_state())


def read_state() -> NestedState:
    """As the kernel tells it, and /dev/kvm by asking it for its version."""
    flags = parse_flags(Path("/proc/cpuinfo").read_text(errors="replace"))
    flag = next((name for name in MODULES if name in flags), "")
    module, parameter = _read_module()
    return NestedState(flag, "hypervisor" in flags, module, parameter, find_kvm_obstacle())


def parse_flags(cpuinfo: str) -> frozenset[str]:
    """Flags of the first processor in /proc/cpuinfo."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next(
        (frozenset(text.split()) for key, _, text in lines if key.strip() == "flags"), frozenset()
    )


def _read_module() -> tuple[str, str]:
    for module in MODULES.values():
        path = Path("/sys/module", module, "parameters", "nested")
        try:
            return module, path.read_text().strip()
        except OSError:
            continue
    return "", ""


def find_kvm_obstacle() -> str:
    """Why /dev/kvm gives us no KVM, or empty. Whether a guest comes up is another question."""
    try:
        handle = os.open(KVM, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return f"{KVM}: {error.strerror}"
    try:
        version = fcntl.ioctl(handle, KVM_GET_API_VERSION)
    except OSError as error:
        return f"{KVM} does not answer: {error.strerror}"
    finally:
        os.close(handle)
    return "" if version == KVM_API_VERSION else f"{KVM} speaks version {version} of its interface"


def judge_nested(state: NestedState) -> Finding:
    """What the state means for guests of guests."""
    if not state.parameter:
        return _without_module(state)
    if state.parameter not in ("Y", "1"):
        hint = f"modprobe -r {state.module} && modprobe {state.module} nested=1"
        return Finding(NAME, "no", f"{state.module} has it switched off; {_WITHOUT}", hint)
    if state.kvm_obstacle:
        what = f"{state.module} lets guests run guests, but {state.kvm_obstacle}"
        return Finding(NAME, "limited", what, f"adduser $USER kvm   (or make {KVM} usable)")
    here = "; this host is a guest already" if state.is_guest else ""
    measure = "measured by studies/accel.toml, run in a guest"
    return Finding(NAME, "yes", f"{state.module} lets guests run guests{here}; {_WITH}", measure)


def _without_module(state: NestedState) -> Finding:
    if state.flag:
        module = MODULES[state.flag]
        what = f"the processor has {state.flag}, but {module} is not loaded; {_WITHOUT}"
        return Finding(NAME, "no", what, f"modprobe {module} nested=1")
    if state.is_guest:
        what = "this host is a guest, and its processor shows it neither vmx nor svm"
        return Finding(NAME, "no", f"{what}; {_WITHOUT}", _BELOW)
    what = "the processor shows neither vmx nor svm"
    return Finding(NAME, "no", f"{what}; {_WITHOUT}", _FIRMWARE)
