"""The user's image: looked at, never written to. What is wrong with it is said before a run."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.errors import HostError, RunFailure, UsageError
from diskproof.guest.ours.boot import has_sandbox
from diskproof.process.cage import BARE_CAGE, LOOK_MEMORY
from diskproof.process.owner import hand_over
from diskproof.process.plain_file import open_plain
from diskproof.process.start import require_tool, run
from diskproof.qemu.own_machine import OVERLAY, VARIABLES, find_image, look_args, look_node
from diskproof.qemu.questions import ask
from diskproof.study.guest import OwnGuest
from diskproof.units import render_bytes

MAX_LAYERS = 16
SECONDS = 60.0
LOOK_SECONDS = 20.0  # of which an image of any size needs a tenth of one
OVMF = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
)
"""Where distributions keep OVMF's code and variables, without Secure Boot."""


@dataclass(frozen=True)
class ImageLayer:
    """One file of an image. ``fd`` is what was looked at, and is all that may be used of it: the
    name may mean another file by now."""

    path: Path
    format: str
    fd: int


@dataclass(frozen=True)
class OwnImage:
    """``layers``: the image and what it is based on, topmost first. ``size`` is what the guest
    sees."""

    layers: tuple[ImageLayer, ...]
    size: int

    @property
    def chain(self) -> str:
        """The files with their formats, for people."""
        return " on ".join(f"{layer.path} ({layer.format})" for layer in self.layers)


@contextmanager
def open_own_image(own: OwnGuest) -> Iterator[OwnImage]:
    """Follow the image down to its lowest base, each layer opened once, for reading, for the length
    of a ``with`` block. No format is guessed, and a base must lie beside the image or be one of the
    study's ``bases``: an image of a foreign guest could name any file of the host, which its guest
    would then read as its own disk.

    Raises UsageError for one that cannot be used, HostError while somebody writes to it.
    """
    for booted in filter(None, (own.kernel, own.initrd)):
        _require_right(Path(booted))
    with ExitStack() as stack:
        path, form = Path(own.image), own.format
        trusted = Path(os.path.realpath(path)).parent, frozenset(map(Path, own.bases))
        layers: list[ImageLayer] = []
        size = 0
        while True:
            layer = ImageLayer(path, form, _open_layer(stack, path))
            facts = _read_info(layer)
            layers.append(layer)
            size = size or _size(facts)
            below = _find_base(path, facts, *trusted)
            if below is None:
                break
            path, form = below
            if len(layers) == MAX_LAYERS:
                raise UsageError(
                    f"{own.image} is based on more than {MAX_LAYERS} images", hint=_FLATTEN
                )
        yield OwnImage(tuple(layers), size)


_FLATTEN = "qemu-img convert makes one image of all"


def _open_layer(stack: ExitStack, path: Path) -> int:
    """A regular file that whoever called sudo may read; what it is may not wait, nor be a link."""
    try:
        fd = open_plain(path, links=False)
    except OSError as error:
        raise UsageError(f"{path} cannot be used", error.strerror or "") from None
    stack.callback(os.close, fd)
    if Path(f"/proc/self/fd/{fd}").readlink() != path:
        raise UsageError(f"{path} cannot be used", "a folder above it was changed meanwhile")
    _require_right(path)
    return fd


def _require_right(path: Path) -> None:
    """Under sudo, root's rights must not lend a user what he may not read."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() or not (user.isdigit() and group.isdigit()) or user == "0":
        return
    them = [f"--reuid={user}", f"--regid={group}", "--init-groups"]
    argv = ["setpriv", *them, "--", "head", "--bytes=1", "--", str(path)]
    done = run(argv, timeout=SECONDS, check=False)
    if done.returncode != 0:
        why = f"user {user}, who called sudo, may not: {done.error_text.strip()[-200:]}"
        raise UsageError(f"{path} cannot be read", why)


def _read_info(layer: ImageLayer) -> Mapping[str, Any]:
    """What QEMU finds in one layer, as ``qemu-img info`` tells it: a QEMU without a machine or any
    rights, which has the file by its descriptor and opens no other."""
    path, form = layer.path, layer.format
    qemu = require_tool("qemu-system-x86_64", "qemu-system-x86")
    try:
        opened, answer = ask(
            [qemu, *look_args(layer.fd, has_sandbox())],
            [("blockdev-add", look_node(form)), ("query-named-block-nodes", {"flat": True})],
            timeout=LOOK_SECONDS,
            confined=True,
            cage=BARE_CAGE.within(LOOK_MEMORY),
            pass_fds=(layer.fd,),
        )
    except RunFailure as failure:
        raise _too_large(path, failure.what) from None
    if opened.silent:
        raise _too_large(path, opened.error)
    if opened.error:
        raise _refusal(path, form, opened.error)
    facts = find_image(answer.result)
    if facts is None:
        raise _too_large(path, answer.error or "QEMU does not say what it is")
    if _details(facts).get("data-file"):
        raise _data_elsewhere(path)
    return facts


def _too_large(path: Path, why: str) -> UsageError:
    within = f"{LOOK_SECONDS:.0f} s and {render_bytes(LOOK_MEMORY)} to look at it"
    return UsageError(f"{path} cannot be used", f"{why}; QEMU may take {within}", _FLATTEN)


def _data_elsewhere(path: Path) -> UsageError:
    return UsageError(f"{path} keeps its data in another file", "", _FLATTEN)


def _details(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    specific = facts.get("format-specific")
    data = specific.get("data") if isinstance(specific, dict) else None
    return data if isinstance(data, dict) else {}


def _refusal(path: Path, form: str, said: str) -> UsageError | HostError:
    why = "\n".join(said.splitlines()[-3:])[:1000]
    if "key-secret" in said or "encrypted" in said:
        what = f"{path} is encrypted"
        return UsageError(what, "nobody could give its key", "qemu-img convert decrypts it")
    if "Could not open '" in said:
        return _data_elsewhere(path)  # the only other file that it can name here
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


def _find_base(
    path: Path, facts: Mapping[str, Any], folder: Path, bases: frozenset[Path]
) -> tuple[Path, str] | None:
    """The file that an image is based on, links resolved, with its format."""
    name = facts.get("backing-filename")
    if name is None:
        return None
    form = facts.get("backing-filename-format")
    if not isinstance(form, str):
        raise UsageError(
            f"{path} does not say what format its base has",
            f"{name}: guessing would trust what a guest wrote",
            f"qemu-img rebase -u -b BASE -F FORMAT {path}",
        )
    base = Path(os.path.realpath(path.parent / str(name)))  # takes a loop of links
    if form not in ("raw", "qcow2", "qed", "vdi", "vhdx") or not base.is_file():
        why = f"{str(name)[:300]} ({form[:30]}) is not there, or is not a file"
        raise UsageError(f"what {path} is based on cannot be used", why, _FLATTEN)
    if base.parent != folder and base not in bases:
        raise UsageError(
            f"{path} is based on {base}, which does not lie beside it",
            "whoever wrote the image chose that file, and its guest would read it",
            f'bases = ["{base}"] in [guest] says that it may',
        )
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
    hand_over(path)


def copy_variables(folder: Path, variables: Path) -> None:
    shutil.copyfile(variables, folder / VARIABLES)
    hand_over(folder / VARIABLES)
