"""What the native programs are linked with: crates, Rust's own library, the C library."""

import html.parser
import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from natives import ROOT

NATIVE = ROOT / "native"
TEXTS = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$", re.IGNORECASE)
STATIC = {
    "libc.a": "LGPL-2.1-or-later",
    "libgcc.a": "GPL-3.0-or-later WITH GCC-exception-3.1",
}
"""Archives that every static program is linked with, and their licences."""
OWN = ("Apache-2.0.txt", "MIT.txt")


@dataclass(frozen=True)
class Part:
    """Something that is inside of our programs. ``sha256`` is of the file it was fetched as, empty
    for what the system brought; ``texts`` are its licences, by their file names."""

    kind: str
    name: str
    version: str
    licence: str
    sha256: str
    texts: tuple[tuple[str, str], ...]
    needs: tuple[str, ...] = ()


def find_parts() -> list[Part]:
    """Crates first, then libraries. SystemExit where one has no text of its licence."""
    parts = [*_crates(), _standard_library(), *_static_libraries()]
    bare = [part.name for part in parts if not part.texts]
    if bare:
        raise SystemExit(f"no text of a licence was found for {', '.join(bare)}")
    return parts


def _cargo(*words: str) -> str:
    argv = [ROOT / "setup" / "cargo", *words, "--locked", "--manifest-path", NATIVE / "Cargo.toml"]
    return _tell(*argv)


def _crates() -> list[Part]:
    """Those that are linked: no procedural macros, nothing that tests or builds need only."""
    edges = ("--workspace", "--edges", "normal,no-proc-macro", "--prefix", "none")
    linked = {tuple(line.split()[:2]) for line in _cargo("tree", *edges).splitlines() if line}
    listing = json.loads(_cargo("metadata", "--format-version", "1"))
    by_id = {package["id"]: package for package in listing["packages"]}
    lock = tomllib.loads((NATIVE / "Cargo.lock").read_text())["package"]
    sums = {(each["name"], each["version"]): each.get("checksum", "") for each in lock}
    found = []
    for node in listing["resolve"]["nodes"]:
        package = by_id[node["id"]]
        if not package["source"] or (package["name"], f"v{package['version']}") not in linked:
            continue
        needed = [by_id[each["pkg"]] for each in node["deps"]]
        names = (f"{each['name']}@{each['version']}" for each in needed
                 if (each["name"], f"v{each['version']}") in linked)  # fmt: skip
        folder = Path(package["manifest_path"]).parent
        found.append(
            Part(
                "cargo",
                package["name"],
                package["version"],
                package["license"].replace("/", " OR "),  # as was written before SPDX
                sums[package["name"], package["version"]],
                _texts(folder) or _named_text(folder, package["license"]),
                tuple(sorted(set(names))),
            )
        )
    return sorted(found, key=lambda part: (part.name, part.version))


def _texts(folder: Path) -> tuple[tuple[str, str], ...]:
    files = sorted(path for path in folder.iterdir() if TEXTS.match(path.name) and path.is_file())
    return tuple((path.name, path.read_text(errors="replace")) for path in files)


def _named_text(folder: Path, licence: str) -> tuple[tuple[str, str], ...]:
    """Of a crate that has no such file: the copyright that its source begins with, and the text of
    the licence that it names."""
    text, source = ROOT / "setup" / "licences" / f"{licence}.txt", folder / "src" / "lib.rs"
    if not text.exists() or not source.exists():
        return ()
    head = re.findall(r"^// (Copyright .+)$", source.read_text()[:1000], re.MULTILINE)
    return ((text.name, "\n".join([*head, "", text.read_text()])),) if head else ()


class _Words(html.parser.HTMLParser):
    """What a page says, without its marks."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _standard_library() -> Part:
    version = _cargo_version()
    if _tell("rustc", "--version").split()[1] != version:
        raise SystemExit(f"rustc in PATH is not {version}, which builds the programs")
    root = Path(_tell("rustc", "--print", "sysroot").strip())
    page = root / "share/doc/rust/COPYRIGHT-library.html"
    if page.exists():
        reader = _Words()
        reader.feed(page.read_text())
        text = re.sub(r"\n\s*\n\s*\n+", "\n\n", "".join(reader.words))
        # The two that it is under; the page has those of what is inside of it.
        own = ((name, (page.parent / "licenses" / name).read_text()) for name in OWN)
        texts = ((page.stem, text), *own)
    else:
        texts = _debian_copyright(root / "lib/rustlib")
    return Part("generic", "rust-std", version, "MIT OR Apache-2.0", "", texts)


def _cargo_version() -> str:
    return _tell(ROOT / "setup" / "cargo", "--version").split()[1]


def _tell(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def _static_libraries() -> list[Part]:
    parts = []
    for archive, licence in STATIC.items():
        path = Path(_tell("cc", f"-print-file-name={archive}").strip()).resolve()
        package, version = _debian_package(path)
        parts.append(Part("deb", package, version, licence, "", _debian_copyright(path)))
    return parts


def _debian_package(path: Path) -> tuple[str, str]:
    """Name and version of the package that a file is of."""
    owner = _tell("dpkg-query", "--search", path).splitlines()[0].rpartition(": ")[0]
    name, version = _tell(
        "dpkg-query", "--show", "--showformat", "${Package} ${Version}", owner
    ).split()
    return name, version


def _debian_copyright(path: Path) -> tuple[tuple[str, str], ...]:
    text = Path("/usr/share/doc", _debian_package(path)[0], "copyright")
    return (("copyright", text.read_text(errors="replace")),)


def render_licences(parts: list[Part], version: str) -> str:
    """One file with all texts; a text that several parts have stands once."""
    head = [
        f"What is inside of the programs of diskproof {version}, and under which licences.",
        "",
        "diskproof itself: no licence has been chosen (NOASSERTION). The Python packages that it",
        "needs are not inside: pip, pipx and uv fetch them, each with its own licence.",
        "",
        *(f"{part.name} {part.version}: {part.licence}" for part in parts),
    ]
    owners: dict[str, list[str]] = {}
    for part in parts:
        for name, text in part.texts:
            owners.setdefault(text.strip(), []).append(f"{part.name} {part.version}: {name}")
    rule = "-" * 80
    for text, names in owners.items():
        head += ["", rule, *names, rule, "", text]
    return "\n".join(head) + "\n"
