"""What a compute host's nova.conf decides for the disks of all its instances.

It is a policy and no machine: one pseudo-disk for each source type that it tells of.
"""

import re
from collections.abc import Iterator

from diskproof.advice import nova
from diskproof.advice.dialect import Reading, Target
from diskproof.advice.nova_conf import Sections, read_list, read_sections, render_sections
from diskproof.errors import UsageError
from diskproof.records.virtual_machines import Change, Layer, Machine, MachineDisk, Remark
from diskproof.study.factors import CACHE_MODES, DIRECT

_SECTION = re.compile(r"^\[libvirt\]\s*$", re.MULTILINE | re.IGNORECASE)
_KEY = re.compile(
    r"^(disk_cachemodes|images_type|hw_disk_discard|virt_type|live_migration_\w+|cpu_mode|"
    r"use_default_aio_mode_for_volumes|rbd_user|compute_driver)\s*[=:]",
    re.MULTILINE,
)
_KINDS = ("file", "block", "network")
_IMAGES = {"lvm": "block", "rbd": "network"}
"""The source type of Nova's own images, by ``images_type``; file for the others."""
_LINE_KEYS = {
    "DEFAULT": (nova.SPACE,),
    "libvirt": (nova.CACHES, nova.DISCARD, nova.IMAGES, nova.VOLUME_AIO),
}


def claims(text: str) -> bool:
    """Whether it is a nova.conf of a host whose instances libvirt runs."""
    return bool(_SECTION.search(text) and _KEY.search(text))


def read_machines(text: str, name: str) -> tuple[Machine, ...]:
    """The policy as one machine. Raises UsageError for what is no nova.conf."""
    sections = read_sections(text, name)
    if "libvirt" not in sections:
        raise UsageError(f"{name}: no [libvirt] section", "it decides nothing about disks")
    libvirt = sections["libvirt"]
    entries = [item.partition("=")[::2] for item in read_list(libvirt.get(nova.CACHES, ""))]
    own = _IMAGES.get(libvirt.get(nova.IMAGES, ""), "file")
    kinds = [kind for kind in _KINDS if kind == own or kind in dict(entries)]
    notes = [
        "the policy of a host: an instance has what it was started with, and its libvirt XML "
        "says what that is",
        "a Cinder volume without an entry has cache=none, one that is multi-attached always",
    ]
    notes += [f"{nova.CACHES}: no disk has the source type {kind!r}" for kind, _ in entries
              if kind not in (*_KINDS, "mount")]  # fmt: skip
    disks = tuple(_read_kind(kind, kind == own, sections) for kind in kinds)
    return (Machine("every instance of this host", "nova", name, disks, notes=tuple(notes)),)


def _line(sections: Sections) -> str:
    """What of the file is about disks: nothing else of it is kept, it has passwords."""
    return render_sections(
        {
            title: {key: given[key] for key in keys if key in (given := sections.get(title, {}))}
            for title, keys in _LINE_KEYS.items()
        }
    )


def _read_kind(kind: str, is_own: bool, sections: Sections) -> MachineDisk:
    libvirt = sections["libvirt"]
    image = f"rbd:{libvirt.get('images_rbd_pool', 'rbd') if is_own else ''}"
    line = _line(sections)
    target = Target(image if kind == "network" else "", kind == "block", existing=line)
    levels = dict(nova.read(line, target))
    assumed = {"detect-zeroes", "iothread"}
    remarks = list(_find_ignored(kind, libvirt.get(nova.CACHES, "")))
    if "discard" not in levels and is_own:
        levels["discard"] = "ignore"
        assumed.add("discard")
    if "cache" not in levels and not is_own:
        levels["cache"] = "none"
        assumed.add("cache")
    if "cache" not in levels:
        remarks.append(_silent(target))
    if kind == "file" and levels.get("preallocation", "off") == "off":
        levels |= {"aio": "threads", "preallocation": "off"}
    elif kind == "block" and levels.get("cache") in DIRECT and nova.VOLUME_AIO not in libvirt:
        levels["aio"] = "native"
    assumed |= {"aio", "preallocation"} & set(levels)
    return MachineDisk(
        kind,
        target.image,
        kind="file" if kind == "file" else "block" if kind == "block" else "network",
        configured=Layer(levels, "nova.conf", frozenset(assumed)),
        line=line,
        remarks=tuple(remarks),
        facts={"policy": "of the host"} | ({"driver": "rbd"} if kind == "network" else {}),
    )


def _find_ignored(kind: str, value: str) -> Iterator[Remark]:
    for entry in read_list(value):
        name, _, mode = entry.partition("=")
        if name == kind and mode not in (*CACHE_MODES, "default"):
            what = f"{nova.CACHES}: {entry!r} is no cache mode, Nova leaves it out with a warning"
            yield Remark("setting-ignored", "configured", "ignored", what, nova.SOURCE)


def _silent(target: Target) -> Remark:
    what = "no cache mode is set: Nova takes none where O_DIRECT works in its folder of instances, "
    what += "else writeback, and nova.conf does not say which; the instance's libvirt XML does"
    paste = nova.write({"cache": "none"}, target)
    change = Change(paste.text, paste.takes_effect)
    return Remark("cache-chosen-silently", "configured", "unknown", what, nova.SOURCE, "unknown",
                  change)  # fmt: skip


READING = Reading("nova", claims, read_machines)
