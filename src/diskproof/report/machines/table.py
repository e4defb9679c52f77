"""Machines and their disks on a terminal of 80 columns, and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from diskproof.advice import observed
from diskproof.records.virtual_machines import (
    Change,
    DiskJudgement,
    Layer,
    LayerName,
    MachineJudgement,
    Remark,
)
from diskproof.report import layout
from diskproof.report.output_answers import DiskJson, MachinesJson

LAYERS: dict[LayerName, str] = {
    "configured": "set",
    "pending": "pending",
    "running": "runs",
    "guest": "guest sees",
    "below": "below",
}
_STYLES = {
    "keeps": "green",
    "unknown": "yellow",
    "will not start": "yellow",
    "may lose": "bold red",
    "loses": "bold red",
}
_LYING = "Nobody can see whether a device carries out the flushes that it acknowledges."
_ASSUMED = "In brackets: nobody wrote it, it is the default."
_KEYS = (observed.WRITE_CACHE, observed.QUEUE, observed.CACHE_TYPE, observed.DEVICE)


@dataclass(frozen=True)
class Whole:
    """Lines of others that are pasted: nothing stands before them, and they are never wrapped."""

    text: str


def render_machines(
    judged: Sequence[MachineJudgement], obstacles: Sequence[str]
) -> Iterator[layout.Shown | Whole]:
    """Each machine with its disks, the verdict first, and the lines that mend them; then what could
    not be looked at, whom to believe and how it stands with all."""
    notes = _Footnotes()
    for each in judged:
        yield from _render_machine(each, notes)
    tail = [[layout.line(f"not seen: {each}", "yellow") for each in obstacles]]
    tail.append([layout.line(f"[{number}] {source}", "dim") for source, number in notes.items()])
    tail.append([layout.line(summarise(judged))])
    if judged:
        tail[-1] += [layout.line(_LYING), layout.line(_ASSUMED)]
    yield layout.paragraphs(tail)


class _Footnotes(dict[str, int]):
    """Sources with their numbers, in the order in which they are cited."""

    def cite(self, source: str) -> str:
        return f"[{self.setdefault(source, len(self) + 1)}]"


def _render_machine(judged: MachineJudgement, notes: _Footnotes) -> Iterator[layout.Shown | Whole]:
    machine = judged.machine
    runs = f"process {machine.pid}" if machine.pid is not None else ""
    facts = ", ".join(dict.fromkeys(filter(None, (machine.manager, runs, machine.source))))
    shown: list[layout.Shown] = [layout.line(f"{machine.name} ({facts})", "bold")]
    shown += [layout.line(f"  {note}") for note in machine.notes]
    if not judged.disks:
        shown.append(layout.line("  no disk of it was found", "yellow"))
    yield layout.paragraphs([[*shown, *(_render_disk(disk, notes) for disk in judged.disks)]])
    for disk in judged.disks:
        for change in _changes(disk.disk.remarks):
            yield layout.line(f"To mend {disk.disk.name} ({change.takes_effect}):", "bold")
            yield Whole(change.text)
    yield layout.line()


def _render_disk(judged: DiskJudgement, notes: _Footnotes) -> layout.Shown:
    disk = judged.disk
    table = layout.start_table("", "-", "*")
    table.title, table.show_header, table.columns[0].width = None, False, _LABEL_WIDTH
    word = layout.line(verdict_words(judged), _STYLES.get(judged.effect, ""))
    table.add_row(disk.name, word)
    table.add_row("", f"{judged.what} {notes.cite(judged.source)}")
    if disk.image:
        table.add_row("  image", disk.image)
    before: Mapping[str, str] = {}
    for name, layer in disk.layers.items():
        if told := layer_text(layer):
            table.add_row(f"  {LAYERS[name]}", "the same" if layer.levels == before else told)
            before = layer.levels
    for remark in disk.remarks:
        if remark.what != judged.what and remark.effect != "keeps":
            told = f"{remark.effect}: {remark.what} {notes.cite(remark.source)}"
            table.add_row(f"  {LAYERS[remark.layer]}", told)
    return table


_LABEL_WIDTH = 14


def verdict_words(judged: DiskJudgement) -> str:
    """The word that counts, with how sure it is: ``loses, by rule``."""
    if judged.effect == "unknown":
        return "unknown"
    return f"{judged.effect}, {judged.certainty}"


def _changes(remarks: Sequence[Remark]) -> list[Change]:
    return list(dict.fromkeys(remark.change for remark in remarks if remark.change))


def layer_text(layer: Layer) -> str:
    """Levels as ``cache=none aio=native``, those that nobody wrote in brackets; what was read
    around a disk in words."""
    told, around = [], []
    for key, value in layer.levels.items():
        word, _, name = key.partition(" ")
        if word == observed.MOUNT:
            around.append(_mount_text(name, value))
        elif word == observed.CACHE_TYPE and layer.levels.get(f"{observed.QUEUE} {name}") == value:
            continue  # the device says the same as the kernel
        elif word in _KEYS:
            around.append(f"{name or word.replace('_', ' ')}: {value or 'not told'}")
        elif name:
            around.append(f"{word} {name}: {value}")
        else:
            text = f"{key}={value}"
            told.append(f"({text})" if key in layer.assumed else text)
    return "; ".join(filter(None, [" ".join(told), *around]))


def _mount_text(point: str, text: str) -> str:
    """A mount with those of its options that have to do with flushes."""
    told = [word for word in observed.options(text) if word.startswith(_FLUSHING)]
    return f"{point}: {' '.join([text.partition(' ')[0], ','.join(told)]).strip()}"


_FLUSHING = ("barrier", "nobarrier", "data=", "sync", "async", "volatile", "flush", "commit=")


def summarise(judged: Sequence[MachineJudgement]) -> str:
    """One or two sentences on all disks."""
    if not judged:
        return (
            "No virtual machine was found: no QEMU runs here, and no manager has one. A "
            "configuration is read from a file: diskproof audit FILE"
        )
    disks = [(each.machine.name, disk) for each in judged for disk in each.disks]
    if not disks:
        return "No disk of a virtual machine was found."
    bad = [f"{name} {disk.disk.name}" for name, disk in disks if disk.falls_short]
    open_ = [f"{name} {disk.disk.name}" for name, disk in disks if disk.effect == "unknown"]
    dead = [f"{name} {disk.disk.name}" for name, disk in disks if disk.effect == "will not start"]
    many = "1 disk" if len(disks) == 1 else f"{len(disks)} disks"
    told = [
        f"{_verb(bad, 'loses or may lose', 'lose or may lose')} what was promised" if bad else "",
        _verb(dead, "will not start", "will not start") if dead else "",
        f"of {len(open_)} nobody here knows" if open_ else "",
    ]
    told = [
        f"{text} ({_names(names)})"
        for text, names in zip(told, (bad, dead, open_), strict=True)
        if text
    ]
    if not told:
        keep = "it keeps" if len(disks) == 1 else "all keep"
        return f"{many}: {keep} what is flushed, as far as can be seen from here."
    return f"{many}: {'; '.join(told)}."


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return f"{len(names)} {one if len(names) == 1 else many}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


_NAMED = 8


def machines_json(judged: Sequence[MachineJudgement], obstacles: Sequence[str]) -> MachinesJson:
    """All that was found and said. ``layers`` has the levels of each layer that was read."""
    return {
        "machines": [
            {
                "name": each.machine.name,
                "manager": each.machine.manager,
                "source": each.machine.source,
                "id": each.machine.id,
                "pid": each.machine.pid,
                "notes": list(each.machine.notes),
                "disks": [_disk_json(disk) for disk in each.disks],
            }
            for each in judged
        ],
        "obstacles": list(obstacles),
        "summary": summarise(judged),
    }


def _disk_json(judged: DiskJudgement) -> DiskJson:
    disk = judged.disk
    return {
        "name": disk.name,
        "image": disk.image,
        "kind": disk.kind,
        "read_only": disk.read_only,
        "line": disk.line,
        "facts": dict(disk.facts),
        "verdict": judged.effect,
        "certainty": judged.certainty,
        "what": judged.what,
        "source": judged.source,
        "layers": {
            name: {
                "levels": dict(layer.levels),
                "source": layer.source,
                "assumed": sorted(layer.assumed),
            }
            for name, layer in disk.layers.items()
        },
        "remarks": [asdict(remark) for remark in disk.remarks],
    }
