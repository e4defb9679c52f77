"""The user's image: looked at, never written to. What is wrong with it is said before a run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.errors import HostError, UsageError
from diskproof.process.start import CONFINED_UID, require_tool, run
from diskproof.qemu.own_machine import OVERLAY, VARIABLES
from diskproof.study.guest import OwnGuest

MAX_LAYERS = 16
SECONDS = 60.0
OVMF = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
)
"""Where distributions keep OVMF's code and variables, without Secure Boot."""


@dataclass(frozen=True)
class OwnImage:
    """``layers``: path and format of the image and of what it is based on, topmost first.
    ``size`` is what the guest sees."""

    layers: tuple[tuple[Path, str], ...]
    size: int


def inspect_own_image(own: OwnGuest) -> OwnImage:
    """Follow the image down to its lowest base. No format is guessed: an image of a foreign guest
    could claim to be one that names other files of the host.

    Raises UsageError for one that cannot be used, HostError while somebody writes to it.
    """
    path, form = Path(own.image), own.format
    layers: list[tuple[Path, str]] = []
    size = 0
    while True:
        facts = _read_info(path, form)
        layers.append((path, form))
        size = size or _size(facts)
        below = _find_base(path, facts)
        if below is None:
            return OwnImage(tuple(layers), size)
        path, form = below
        if len(layers) == MAX_LAYERS:
            raise UsageError(
                f"{own.image} is based on more than {MAX_LAYERS} images", hint=_FLATTEN
            )


_FLATTEN = "qemu-img convert makes one image of all"


def _read_info(path: Path, form: str) -> Mapping[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path} cannot be used", "it is not there, or is not a file")
    arguments = ["info", "--output=json", "-f", form, "--", str(path)]
    tool = require_tool("qemu-img", "qemu-utils")
    done = run([tool, *arguments], timeout=SECONDS, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode != 0:
        raise _refusal(path, form, done.error_text)
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise UsageError(f"{path} cannot be used", "qemu-img info did not answer in JSON")
    if facts.get("encrypted"):
        raise UsageError(
            f"{path} is encrypted", "nobody could give its key", "qemu-img convert decrypts it"
        )
    if _details(facts).get("data-file"):
        raise UsageError(f"{path} keeps its data in another file", "", _FLATTEN)
    return facts


def _details(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    specific = facts.get("format-specific")
    data = specific.get("data") if isinstance(specific, dict) else None
    return data if isinstance(data, dict) else {}


def _refusal(path: Path, form: str, said: str) -> UsageError | HostError:
    why = "\n".join(said.splitlines()[-3:]).removeprefix("qemu-img: ")[:1000]
    if "lock" in said:
        hint = "shut down what uses it (a virtual machine, qemu-nbd); a copy would do as well"
        return HostError(f"{path} is in use", why, hint)
    hint = 'format = "raw|qcow2|vdi|vhdx" in [guest] says what it is: qemu-img info tells'
    return UsageError(f"{path} is not a {form} image that can be read", why, hint)


def _size(facts: Mapping[str, Any]) -> int:
    size = facts.get("virtual-size")
    if type(size) is not int or size <= 0:
        raise UsageError(f"{facts.get('filename')} has no size", f"virtual-size is {size!r}")
    return size


def _find_base(path: Path, facts: Mapping[str, Any]) -> tuple[Path, str] | None:
    """The file that an image is based on, with its format."""
    name = facts.get("full-backing-filename", facts.get("backing-filename"))
    if name is None:
        return None
    form = facts.get("backing-filename-format")
    if not isinstance(form, str):
        raise UsageError(
            f"{path} does not say what format its base has",
            f"{name}: guessing would trust what a guest wrote",
            f"qemu-img rebase -u -b BASE -F FORMAT {path}",
        )
    base = Path(str(name)) if str(name).startswith("/") else path.parent / str(name)
    if form not in ("raw", "qcow2", "qed", "vdi", "vhdx") or not base.is_file():
        why = f"{str(name)[:300]} ({form[:30]}) is not there, or is not a file"
        raise UsageError(f"what {path} is based on cannot be used", why, _FLATTEN)
    return base, form


def find_firmware() -> tuple[Path, Path] | None:
    """OVMF's code and variables, None where it is not installed."""
    pairs = ((Path(code), Path(variables)) for code, variables in OVMF)
    return next((pair for pair in pairs if pair[0].is_file() and pair[1].is_file()), None)


def require_firmware() -> tuple[Path, Path]:
    found = find_firmware()
    if found is None:
        where = "it was looked for in /usr/share/OVMF and /usr/share/edk2"
        raise HostError('firmware = "uefi" needs OVMF', where, "apt-get install ovmf")
    return found


def make_overlay(folder: Path, size: int) -> None:
    """The run's own layer, which takes all that the guest writes; QEMU alone may open it."""
    path = folder / OVERLAY
    tool = require_tool("qemu-img", "qemu-utils")
    run([tool, "create", "-q", "-f", "qcow2", "--", str(path), str(size)], timeout=SECONDS)
    _hand_over(path)


def copy_variables(folder: Path, variables: Path) -> None:
    shutil.copyfile(variables, folder / VARIABLES)
    _hand_over(folder / VARIABLES)


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, CONFINED_UID, CONFINED_UID)
    path.chmod(0o600)
