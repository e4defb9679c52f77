"""The mapping of docs/advise.md, made from the dialects themselves.

``PYTHONPATH=src:tests python -m support.advice_docs`` writes it anew.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from diskproof.advice.dialect import Dialect, Target
from diskproof.advice.dialects import DIALECTS
from diskproof.advice.libvirt_levels import BUSES, DRIVER_KEYS
from diskproof.study.factors import FACTOR_BY_NAME

PAGE = Path(__file__).parents[2] / "docs" / "advise.md"
BEGIN, END = "<!-- made by tests/support/advice_docs.py: begin -->", "<!-- end -->"
FACTORS = (
    "format",
    "preallocation",
    "cache",
    "aio",
    "discard",
    "detect-zeroes",
    "iothread",
    "bus",
    "l2-cache-size",
)
SAMPLES = {"l2-cache-size": ("32M", "8M")}
FILE, BLOCK = Target(), Target("/dev/vg/disk", block=True)
LIBVIRT = {
    **{factor: f"`<driver {key}=>`" for factor, key in DRIVER_KEYS.items()},
    "bus": f"`<target bus=>` {', '.join(sorted({bus for bus, _ in BUSES.values()}))}",
    "iothread": "`<iothreads>` and `iothread='1'` of the driver, of a SCSI disk its controller's",
    "l2-cache-size": "`<metadata_cache><max_size unit='bytes'>`: all metadata caches",
    "preallocation": "`qemu-img create -o`",
}
VIRT_INSTALL = {
    **{factor: f"`--disk driver.{key}=`" for factor, key in DRIVER_KEYS.items()},
    "bus": "`--disk target.bus=`, a SCSI controller by `--controller`",
    "iothread": "`driver.iothread=1 --iothreads 1`",
    "l2-cache-size": "`xpath1.set=./driver/metadata_cache/max_size`",
    "preallocation": "`qemu-img create -o`",
}


def render_mapping() -> str:
    """All dialects: source, what a new disk gets, words, what cannot be said."""
    return "\n".join(line for dialect in DIALECTS.values() for line in _dialect_lines(dialect))


def _dialect_lines(dialect: Dialect) -> Iterator[str]:
    yield f"### {dialect.title} (`--for {dialect.name}`)"
    yield f"From {dialect.source}."
    yield ""
    yield "| factor | its words | a new disk | cannot be said |"
    yield "|---|---|---|---|"
    words, file, block = _words(dialect.name), dialect.defaults(FILE), dialect.defaults(BLOCK)
    for factor in FACTORS:
        cells = (factor, words.get(factor, "-"), _default(factor, file, block))
        gaps = "; ".join(_gaps(dialect, factor)) or "-"
        yield f"| {' | '.join((*cells, gaps))} |"
    yield ""


def _default(factor: str, file: Mapping[str, str], block: Mapping[str, str]) -> str:
    usual, other = file.get(factor, "-"), block.get(factor, "-")
    return usual if usual == other else f"{usual}, a block device {other}"


def _gaps(dialect: Dialect, factor: str) -> Iterator[str]:
    """Levels that cannot be said by themselves, with the nearest."""
    levels = SAMPLES.get(factor) or FACTOR_BY_NAME[factor].levels
    told: dict[tuple[str, str], list[str]] = {}
    for level in levels:
        given = {factor: level}
        if (factor, level) == ("aio", "native"):
            given["cache"] = "none"  # elsewhere QEMU refuses it
        if (factor, level) == ("detect-zeroes", "unmap"):
            given["discard"] = "unmap"
        if factor == "preallocation" and level != "off":
            given["format"] = "qcow2"
        for gap in dialect.find_obstacles(given, FILE):
            if gap.factor == factor:
                told.setdefault((gap.reason, gap.nearest), []).append(level)
    for (reason, nearest), names in told.items():
        near = f", nearest {nearest}" if nearest else ""
        yield f"{', '.join(names)}: {reason}{near}"


def _words(name: str) -> dict[str, str]:
    if name in ("libvirt", "virt-install"):
        return LIBVIRT if name == "libvirt" else VIRT_INSTALL
    rows = import_module(f"diskproof.advice.{name.replace('-', '_')}").MAPPING
    found: dict[str, str] = {}
    for row in rows:
        names, words = (row.factor, row.blockdev) if hasattr(row, "blockdev") else row[:2]
        for factor in names.split(", "):
            found[factor] = words.replace("|", "/")
    return found


def replace_mapping(page: str) -> str:
    """The page with the mapping as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render_mapping()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(replace_mapping(PAGE.read_text()))
