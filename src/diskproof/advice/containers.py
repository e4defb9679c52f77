"""QEMUs in containers: ``docker inspect``, ``podman inspect`` and compose files, of images that
take their disks' settings from the environment, and of any that is given a command line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from diskproof.advice.container_disks import IMAGES, read_disks
from diskproof.advice.dialect import Reading
from diskproof.advice.documents import (
    find_at,
    list_at,
    load_documents,
    require_short,
    table_at,
    text_at,
)
from diskproof.advice.qemu_options import find_command_lines, find_program, split_commands
from diskproof.advice.qemu_read import read_command_line
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Machine

MAX_CONTAINERS = 1000
"""In one text."""
_IMAGES = "|".join(re.escape(image) for image in IMAGES)
_QEMU = re.compile(rf"\b(?:{_IMAGES})\b|qemu-system-|qemu-kvm")
_INSPECT = re.compile(r'"Config"\s*:')
_COMPOSE = re.compile(r"""^(?:services:|\{?\s{0,40}["']services["']\s{0,40}:)""", re.MULTILINE)


@dataclass(frozen=True)
class Container:
    """One container as it is made. ``mounts`` and ``devices`` are the host's names by those inside;
    ``words`` are its program and arguments."""

    name: str
    image: str
    env: Mapping[str, str]
    words: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def repository(self) -> str:
        """The image without its registry, tag and digest: ``qemux/qemu``."""
        path = self.image.partition("@")[0].split("/")
        return "/".join([*path[:-1], path[-1].partition(":")[0]][-2:])


def claims(text: str) -> bool:
    """Whether it tells of containers, and of a QEMU in one."""
    told = _COMPOSE.search(text) or (text.lstrip()[:1] in ("[", "{") and _INSPECT.search(text))
    return bool(told and _QEMU.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The machines of the containers that run a QEMU. Raises UsageError where there is none."""
    documents = load_documents(text, name)
    containers = [each for document in documents for each in _find_containers(document)]
    if len(containers) > MAX_CONTAINERS:
        raise UsageError(f"{name}: too many containers", f"at most {MAX_CONTAINERS} are read")
    words = [each for c in containers for each in (*c.words, c.env.get("ARGUMENTS", ""))]
    require_short("".join(words), name)
    found = [machine for each in containers for machine in _read_container(each, name)]
    if not found:
        raise UsageError(f"{name}: no container with a QEMU in it", f"known: {', '.join(IMAGES)}")
    return tuple(found)


def _find_containers(document: object) -> Iterator[Container]:
    for name, service in table_at(document, "services").items():
        yield _read_service(name, service)
    for item in document if isinstance(document, list) else [document]:
        if find_at(item, "Config") is not None:
            yield _read_inspected(item)


def _read_container(container: Container, source: str) -> Iterator[Machine]:
    disks = read_disks(container.repository, container.env, container.mounts, container.devices)
    if disks is not None:
        yield Machine(
            container.name,
            "container",
            source,
            disks,
            container.image,
            notes=(
                f"as {container.image} reads its environment; what runs is QEMU's",
                *container.notes,
            ),
        )
        return
    for argv in _find_argv(container.words):
        machine = read_command_line(argv, source)
        notes = machine.notes + container.notes
        yield replace(machine, name=container.name, id=container.image, notes=notes)


def _find_argv(words: tuple[str, ...]) -> Iterator[list[str]]:
    """QEMU's command line: the container's own, or that of a shell in it."""
    if (place := find_program(words)) is not None:
        yield list(words[place:])
        return
    for word in words:
        if _QEMU.search(word):
            yield from find_command_lines(word)


# -- as docker and podman print them ---------------------------------------------------------


def _read_inspected(item: object) -> Container:
    path = text_at(item, "Path")
    words = [path, *_texts(item, "Args")] if path else [
        *_texts(item, "Config", "Entrypoint"), *_texts(item, "Config", "Cmd")]  # fmt: skip
    mounts = {
        text_at(mount, "Destination"): text_at(mount, "Source") or text_at(mount, "Name")
        for mount in list_at(item, "Mounts")
    }
    devices = {
        text_at(device, "PathInContainer"): text_at(device, "PathOnHost")
        for device in list_at(item, "HostConfig", "Devices")
    }
    return Container(
        text_at(item, "Name").removeprefix("/") or text_at(item, "Id")[:12],
        text_at(item, "ImageName") or text_at(item, "Config", "Image"),
        dict(word.partition("=")[::2] for word in _texts(item, "Config", "Env")),
        tuple(words),
        mounts,
        devices,
    )


def _texts(document: object, *keys: str) -> list[str]:
    return [text_at({"": item}, "") for item in list_at(document, *keys)]


# -- as compose files write them -------------------------------------------------------------


def _read_service(name: str, service: object) -> Container:
    env = {key: text_at({"": value}, "") for key, value in table_at(service, "environment").items()}
    env |= dict(word.partition("=")[::2] for word in _texts(service, "environment"))
    words = [word for key in ("entrypoint", "command") for word in _command(service, key)]
    hidden = [key for key in ("env_file", "extends") if find_at(service, key)]
    return Container(
        text_at(service, "container_name") or name,
        text_at(service, "image"),
        env,
        tuple(words),
        dict(_pairs(service, "volumes")),
        dict(_pairs(service, "devices")),
        notes=tuple(f"its {key} was not read" for key in hidden),
    )


def _command(service: object, key: str) -> list[str]:
    text = find_at(service, key)
    if isinstance(text, str):
        return [word for words in split_commands(text) for word in words]
    return _texts(service, key)


def _pairs(service: object, key: str) -> Iterator[tuple[str, str]]:
    """The name inside and the host's, of ``HOST:INSIDE[:OPTIONS]`` or of a mapping."""
    for item in list_at(service, key):
        if isinstance(item, str):
            host, _, inside = item.partition(":")
            yield (inside.partition(":")[0] or host), host
        else:
            yield text_at(item, "target"), text_at(item, "source")


READING = Reading("containers", claims, read_machines)
