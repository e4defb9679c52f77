"""What the installed QEMU offers: each capability is asked for or tried, versions say nothing.

A list of QMP commands goes in, the answers come out, QEMU is gone: no socket and no connection to
look after. The block layer is tried as runs use it: confined, in a run's folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from diskproof.errors import DiskproofError
from diskproof.process.cage import BARE_CAGE, QEMU_CAGE
from diskproof.process.owner import hand_over
from diskproof.process.start import require_tool, run
from diskproof.qemu.disk import BUSES
from diskproof.qemu.questions import Command, QemuAnswer, ask
from diskproof.study.factors import FACTOR_BY_NAME

FORMATS = FACTOR_BY_NAME["format"].levels
AIO = FACTOR_BY_NAME["aio"].levels
SECONDS = 20.0  # of which a free processor needs a tenth of one
_IMAGE_SIZE = "1M"


@dataclass(frozen=True)
class Probed:
    """Levels of a factor that work, and for each that does not, why."""

    usable: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)


def nothing_usable(levels: Sequence[str], reason: str) -> Probed:
    return Probed(reasons=dict.fromkeys(levels, reason))


def explain(error: DiskproofError) -> str:
    """An error on one line: what, why, what to do."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


# -- the block layer --------------------------------------------------------------------------


def probe_block_layer(folder: Path) -> tuple[Probed, Probed]:
    """Image formats and aio modes, each by opening an image of its own in ``folder``.

    ``folder`` is a run's folder (see ``backings``) and holds the images until it goes.
    """
    try:
        made = make_images(folder)
        answers = ask_block_layer(folder, [*format_commands(), *aio_commands(_form_to_read(made))])
    except DiskproofError as error:
        return nothing_usable(FORMATS, explain(error)), nothing_usable(AIO, explain(error))
    opened = [answers[2 * index + 1] for index in range(len(FORMATS))]
    formats = {
        form: made[form] or answer.error for form, answer in zip(FORMATS, opened, strict=True)
    }
    tried = answers[2 * len(FORMATS) :]
    aio = {
        mode: tried[2 * index].error or tried[2 * index + 1].error for index, mode in enumerate(AIO)
    }
    return _sort_out(formats), _sort_out(aio)


def make_images(folder: Path) -> dict[str, str]:
    """A small image of each format in ``folder``; says for each why it could not be made."""
    qemu_img = require_tool("qemu-img", "qemu-utils")
    failed = {}
    for form in FORMATS:
        image = folder / f"probe.{form}"
        argv = [qemu_img, "create", "-q", "-f", form, "--", str(image), _IMAGE_SIZE]
        failed[form] = run(argv, timeout=SECONDS, check=False).error_text
        if image.exists():
            hand_over(image)
    return failed


def format_commands() -> list[Command]:
    return [command for form in FORMATS for command in _open_commands(form, "threads", form)]


def aio_commands(form: str) -> list[Command]:
    """Open an image with each aio mode. The format's driver reads its header through it."""
    return [command for mode in AIO for command in _open_commands(form, mode, f"aio-{mode}")]


def _form_to_read(made: Mapping[str, str]) -> str:
    """A format with a header, so that opening it is an I/O."""
    return next((form for form in ("qcow2", "qed") if not made[form]), "raw")


def _open_commands(form: str, aio: str, name: str) -> list[Command]:
    """A file node and a format node on it. aio=native is nothing without direct I/O."""
    both = {"read-only": False, "cache": {"direct": aio == "native"}}
    file = {"driver": "file", "node-name": f"{name}-file", "filename": f"probe.{form}", "aio": aio}
    disk = {"driver": form, "node-name": f"{name}-disk", "file": f"{name}-file"}
    # The same image is opened more than once; only its header is read.
    return [
        ("blockdev-add", {**file, **both, "locking": "off"}),
        ("blockdev-add", {**disk, **both}),
    ]


def ask_block_layer(folder: Path, commands: Sequence[Command]) -> list[QemuAnswer]:
    """Ask a storage daemon that runs in ``folder`` with no more rights than that of a run."""
    daemon = require_tool("qemu-storage-daemon", "qemu-system-common")
    argv = [
        daemon,
        *("--chardev", "stdio,id=qmp"),
        *("--monitor", "chardev=qmp,mode=control"),
    ]
    return ask(argv, commands, timeout=SECONDS, cwd=folder, confined=True, cage=QEMU_CAGE)


# -- devices of the system emulator -----------------------------------------------------------


def probe_buses() -> tuple[Probed, Probed]:
    """Buses whose devices this QEMU has, and those that take an iothread."""
    try:
        known = read_properties(_bus_devices())
    except DiskproofError as error:
        return nothing_usable(tuple(BUSES), explain(error)), Probed()
    return find_buses(known), find_iothread_buses(known)


def read_properties(devices: Sequence[str]) -> dict[str, frozenset[str]]:
    """Device -> names of its properties; a device that this QEMU does not have has none."""
    qemu = require_tool("qemu-system-x86_64", "qemu-system-x86")
    argv = [qemu, "-nodefaults", "-no-user-config", "-machine", "none", "-display", "none"]
    commands = [("device-list-properties", {"typename": device}) for device in devices]
    argv += ["-qmp", "stdio"]
    answers = ask(argv, commands, timeout=SECONDS, confined=True, cage=BARE_CAGE)
    return {
        device: frozenset(
            str(item.get("name"))
            for item in (answer.result if isinstance(answer.result, list) else [])
            if isinstance(item, dict)
        )
        for device, answer in zip(devices, answers, strict=True)
    }


def find_buses(known: Mapping[str, frozenset[str]]) -> Probed:
    """From the properties of devices to buses that can carry the disk under test."""
    failed = {}
    for name, bus in BUSES.items():
        controller = [str(bus.controller["driver"])] if bus.controller else []
        missing = [device for device in (*controller, bus.device) if not known[device]]
        lacking = sorted({"drive", "serial", "write-cache"} - known[bus.device])
        failed[name] = ""
        if missing:
            failed[name] = f"this QEMU has no device {' and no '.join(missing)}"
        elif lacking:
            failed[name] = f"{bus.device} of this QEMU has no property {', '.join(lacking)}"
    return _sort_out(failed)


def find_iothread_buses(known: Mapping[str, frozenset[str]]) -> Probed:
    return _sort_out(
        {
            name: "" if "iothread" in known.get(bus.iothread_on, ()) else "no iothread property"
            for name, bus in BUSES.items()
        }
    )


def _bus_devices() -> list[str]:
    controllers = {str(bus.controller["driver"]) for bus in BUSES.values() if bus.controller}
    return sorted(controllers | {bus.device for bus in BUSES.values()})


def _sort_out(failed: Mapping[str, str]) -> Probed:
    """Levels with the reason why they fail (empty: they work)."""
    return Probed(
        frozenset(level for level, reason in failed.items() if not reason),
        {level: reason for level, reason in failed.items() if reason},
    )
