"""Cloud Hypervisor's disks: its command line, and what ``ch-remote info`` prints."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from diskproof.advice.dialect import Reading
from diskproof.advice.documents import (
    find_at,
    list_at,
    load_json,
    require_few_disks,
    require_short,
    text_at,
)
from diskproof.advice.qemu_options import split_commands
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Layer, LayerName, Machine, MachineDisk, Remark

SOURCE = (
    "Cloud Hypervisor v53.0-246-gae44c2971 (2026-08-22): vmm/src/config.rs DiskConfig, "
    "virtio-devices/src/block.rs (FLUSH and CONFIG_WCE are always offered), option_parser"
)
_JSON = re.compile(r'"disks"\s*:')
_OURS = re.compile(r'"(memory_actual_size|payload|vhost_socket|image_type|num_queues|cpus)"\s*:')
_LINE = re.compile(
    r"(?:^|[\s/='\"])cloud-hypervisor(?:-static)?['\"]?\s(?:[^\n]|\\\n){0,4000}?--disk\b",
    re.MULTILINE,
)
PROGRAM = re.compile(r"(?:.*/)?cloud-hypervisor(?:-static)?(?:-(?:x86_64|aarch64))?")
_PIECE = re.compile(r'(?:"[^"]*"|\[(?:[^\[\]]|\[[^\[\]]*\])*\]|[^,"\[\]])+')
_ON = ("on", "true")
_MAX_DISK = 4096
"""Characters of one disk on a command line."""


def claims(text: str) -> bool:
    """Whether it is a machine in Cloud Hypervisor's JSON, or starts one."""
    if text.lstrip("\ufeff \t\r\n")[:1] == "{":
        return bool(_JSON.search(text) and _OURS.search(text))
    return bool(_LINE.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The machines of ``ch-remote info``, of a body of ``vm.create``, or of command lines. Raises
    UsageError for what is none."""
    if text.lstrip("\ufeff \t\r\n")[:1] == "{":
        return (_read_info(load_json(text, name), name),)
    require_short(text, name)
    found = [
        read_arguments(words[place + 1 :], name, "configured")
        for words in split_commands(text)
        for place in [place for place, word in enumerate(words) if PROGRAM.fullmatch(word)][:1]
    ]
    if not found:
        raise UsageError(f"{name}: no command line of cloud-hypervisor")
    return tuple(found)


def _read_info(document: object, name: str) -> Machine:
    config = find_at(document, "config")
    state = text_at(document, "state")
    owner = config if isinstance(config, dict) else document
    if not isinstance(find_at(owner, "disks"), list):
        raise UsageError(f"{name}: no disks in it", "ch-remote info prints config.disks")
    layer: LayerName = "running" if state in ("Running", "Paused") else "configured"
    disks = [disk for disk in list_at(owner, "disks") if isinstance(disk, dict)]
    return _machine(name, [{key: _text(value) for key, value in disk.items()} for disk in disks],
                    "ch-remote info" if state else "its configuration", layer)  # fmt: skip


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value or "")


def read_arguments(arguments: Sequence[str], name: str, layer: LayerName) -> Machine:
    """The machine that a command line starts; ``--disk`` takes any number of disks."""
    disks: list[dict[str, str]] = []
    taking = False
    for word in arguments:
        option, _, value = word.partition("=")
        if word.startswith("-"):
            taking = option == "--disk"
            word = value if taking else ""
        if taking and word:
            disks.append(dict(_split(word)))
    return _machine(name, disks, "its command line", layer)


def _split(text: str) -> Iterator[tuple[str, str]]:
    """The keys of one disk; commas in quotes and brackets part nothing."""
    if len(text) > _MAX_DISK:
        raise UsageError(
            "a disk of cloud-hypervisor is too long", f"{_MAX_DISK} characters at most"
        )
    for piece in _PIECE.findall(text):
        key, _, value = piece.partition("=")
        yield key, value.strip().strip('"')


def _machine(
    name: str, disks: Sequence[Mapping[str, str]], source: str, layer: LayerName
) -> Machine:
    require_few_disks(len(disks), name)
    read = tuple(_read_disk(disk, place, source, layer) for place, disk in enumerate(disks))
    return Machine(name.rpartition("/")[2], "cloud-hypervisor", name, read)


def _read_disk(disk: Mapping[str, str], place: int, source: str, layer: LayerName) -> MachineDisk:
    outside = disk.get("vhost_user", "").lower() in _ON or bool(
        disk.get("vhost_socket") or disk.get("socket")
    )
    direct = "on" if disk.get("direct", "").lower() in _ON else "off"
    levels = {"bus": "virtio-blk"} | ({} if outside else {"flush": "advertised", "direct": direct})
    assumed = {"flush"} | ({"direct"} if "direct" not in disk else set())
    made = Layer(levels, source, frozenset(assumed & set(levels)))
    read_only = disk.get("readonly", "").lower() in _ON
    image = disk.get("path", "")
    what = "a vhost-user process serves it: what that does with a flush cannot be seen here"
    unseen = Remark("vhost-user", layer, "unknown", what, SOURCE, "unknown")
    facts = {"vmm": "cloud-hypervisor", "format": disk.get("image_type", "").lower()}
    return MachineDisk(
        disk.get("id") or f"disk{place}",
        image or disk.get("vhost_socket", "") or disk.get("socket", ""),
        kind="block" if image.startswith("/dev/") else "file" if image else "",
        configured=made if layer == "configured" else None,
        running=made if layer == "running" else None,
        read_only=read_only,
        line="--disk " + ",".join(f"{key}={value}" for key, value in disk.items() if value),
        remarks=(unseen,) if outside and not read_only else (),
        facts={key: fact for key, fact in facts.items() if fact},
    )


READING = Reading("cloud-hypervisor", claims, read_machines)
