"""libvirt's XML as strangers write it, bounded, and how it is written again."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element, TreeBuilder  # elements only; defusedxml parses
from xml.sax.saxutils import escape

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser, ParseError

from diskproof.errors import UsageError

MAX_CHARACTERS = 4 << 20
MAX_DEPTH = 300  # a backing chain nests its images, and libvirt takes chains of 200
MAX_ELEMENTS = 100_000
CLAIM_CHARACTERS = 64 << 10


class _TooMuch(Exception):
    """Deeper or longer than any machine of libvirt."""


class _BoundedBuilder(TreeBuilder):
    """A tree that stops growing at ``MAX_DEPTH`` and ``MAX_ELEMENTS``."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise _TooMuch(f"elements are nested deeper than {MAX_DEPTH}")
        if self._count > MAX_ELEMENTS:
            raise _TooMuch(f"more than {MAX_ELEMENTS} elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse_documents(text: str, name: str) -> tuple[Element, ...]:
    """The XML documents that stand one after another in a text, as several ``virsh dumpxml`` print
    them. Raises UsageError for what is no XML, too large, too deep, or has a document type."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"{name}: this is too large for a machine of libvirt",
            f"{len(text)} characters, and {MAX_CHARACTERS} are read at most",
        )
    parser = DefusedXMLParser(target=_BoundedBuilder(), forbid_dtd=True)
    try:
        parser.feed("<documents>")
        parser.feed(_without_prologs(text))
        parser.feed("</documents>")
        root = parser.close()
    except ParseError as error:
        raise UsageError(f"{name}: this XML cannot be read", str(error)) from None
    except DefusedXmlException as error:
        why = f"document types and entities are not read ({type(error).__name__})"
        raise UsageError(f"{name}: this XML is refused", why) from None
    except (_TooMuch, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: this XML is refused", str(error)) from None
    return tuple(root)


def _without_prologs(text: str) -> str:
    """The text with ``<?xml ...?>`` blanked, which may stand at the beginning of a file only."""
    pieces, at = [], 0
    while (begin := text.find("<?xml ", at)) >= 0:
        end = text.find("?>", begin)
        if end < 0:
            break
        pieces.append(text[at:begin])
        at = end + 2
    return "".join([*pieces, text[at:]]).removeprefix("\ufeff")


def find_root_name(text: str) -> str:
    """The name of the first element (or of the document type) of a text, empty if there is none."""
    at = 0
    while (at := text.find("<", at)) >= 0:
        for opening, closing in (("<!--", "-->"), ("<?", "?>")):
            if text.startswith(opening, at):
                at = text.find(closing, at)
                break
        else:
            rest = text[at + 1 : at + 80].removeprefix("!DOCTYPE").lstrip()
            return rest.split(">")[0].split("/")[0].split()[0] if rest[:1].isalpha() else ""
        if at < 0:
            return ""
    return ""


def render_element(element: Element, indent: int = 0) -> str:
    """An element as libvirt writes it: single quotes, two blanks a level. Text between elements
    and other namespaces, of which a disk has none, are dropped."""
    blank = "  " * indent
    attributes = "".join(
        f" {name}='{_quoted(value)}'" for name, value in element.items() if name[0] != "{"
    )
    children = [each for each in element if not each.tag.startswith("{")]
    if children:
        inner = "\n".join(render_element(each, indent + 1) for each in children)
        return f"{blank}<{element.tag}{attributes}>\n{inner}\n{blank}</{element.tag}>"
    if element.text and element.text.strip():
        return f"{blank}<{element.tag}{attributes}>{escape(element.text.strip())}</{element.tag}>"
    return f"{blank}<{element.tag}{attributes}/>"


def _quoted(value: str) -> str:
    return escape(value, {"'": "&apos;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})


def make_element(tag: str, attributes: Mapping[str, str], *children: Element) -> Element:
    """An element with its children."""
    element = Element(tag, dict(attributes))
    element.extend(children)
    return element


def child(element: Element, tag: str) -> Element:
    """The first child of that name; a new empty one, which is not attached, where there is none."""
    found = element.find(tag)
    return Element(tag) if found is None else found


def require_child(element: Element, tag: str) -> Element:
    """The first child of that name; it is made as the first of all where there is none."""
    found = element.find(tag)
    if found is None:
        found = Element(tag)
        element.insert(0, found)
    return found


@dataclass(frozen=True)
class DiskParts:
    """A disk with what decides on it elsewhere in its machine: the SCSI controller that it hangs
    on, and how many threads there are."""

    disk: Element
    controller: Element | None = None
    iothreads: int = 0
    iothread_ids: frozenset[int] = frozenset()

    @property
    def bus(self) -> str:
        """The bus as libvirt names it; without one it follows the name of the disk."""
        target = child(self.disk, "target")
        return target.get("bus") or _BUS_OF_PREFIX.get(target.get("dev", "")[:2], "")

    @property
    def name(self) -> str:
        return child(self.disk, "target").get("dev", "")


_BUS_OF_PREFIX = {"vd": "virtio", "sd": "scsi", "hd": "ide", "fd": "fdc"}


def iter_parts(root: Element) -> Iterator[DiskParts]:
    """Every disk of a domain, or of elements that stand side by side as ``write`` puts them."""
    devices = root.find("devices")
    place = root if devices is None else devices
    controllers = {
        found.get("index", "0"): found
        for found in place.findall("controller")
        if found.get("type") == "scsi"
    }
    count, ids = _read_iothreads(root)
    for disk in place.findall("disk"):
        parts = DiskParts(disk, None, count, ids)
        hangs_on = controllers.get(_controller_index(parts)) if parts.bus == "scsi" else None
        yield DiskParts(disk, hangs_on, count, ids)


def _controller_index(parts: DiskParts) -> str:
    """The SCSI controller of a disk: its address, else by its letter (15 disks a controller)."""
    address = child(parts.disk, "address")
    if address.get("type") == "drive":
        return address.get("controller", "0")
    return str(disk_number(parts.name) // 15)


def disk_number(name: str) -> int:
    """0 for ``vda``, 26 for ``vdaa``."""
    number = 0
    for letter in re.sub("[^a-z]", "", name[2:6]):
        number = number * 26 + ord(letter) - ord("a") + 1
    return max(0, number - 1)


def _read_iothreads(root: Element) -> tuple[int, frozenset[int]]:
    """``<iothreads>`` and the numbers there are: those that ``<iothreadids>`` names, and the lowest
    free ones up to the count."""
    ids = {
        int(number)
        for each in root.findall("iothreadids/iothread")
        if (number := each.get("id", "")).isdecimal() and len(number) < 7
    }
    text = (root.findtext("iothreads") or "").strip()
    count = int(text) if text.isdecimal() and len(text) < 4 else 0
    free = iter(range(1, count + len(ids) + 1))
    while len(ids) < count:
        ids.add(next(free))
    return len(ids), frozenset(ids)
