"""The tools that the documents name are on the PATH of an activated environment."""

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAME = re.compile(r"(?<![\w./-])diskproof-[a-z]+(?:-[a-z]+)*(?![\w./-])")
GUESTS = {"diskproof-agent", "diskproof-poweroff"}
"""Programs of guests, which nobody starts on a host."""
THINGS = {"diskproof-images", "diskproof-disk"}
"""Names of a folder, and of a device of guests."""


def find_programs() -> set[str]:
    """What the crates of native/ build to be started."""
    found = set()
    for path in (ROOT / "native").glob("*/*/Cargo.toml"):
        crate = tomllib.loads(path.read_text())
        if (path.parent / "src" / "main.rs").exists():
            found.add(crate["package"]["name"])
        found |= {each["name"] for each in crate.get("bin", ())}
    return found


def test_every_tool_that_a_document_names_is_on_the_path() -> None:
    named = {name for page in PAGES for name in NAME.findall(page.read_text())}
    tools = named & find_programs() - GUESTS
    assert {"diskproof-sync-drop", "diskproof-monitor", "diskproof-states"} <= tools
    assert named - find_programs() == THINGS, "a name that means nothing"
    folder = Path(sys.prefix) / "bin"
    assert [name for name in sorted(tools) if not shutil.which(name, path=str(folder))] == []


def test_links_to_tools_move_with_their_environment() -> None:
    folder = Path(sys.prefix) / "bin"
    links = [
        path for path in folder.iterdir() if path.is_symlink() and "libexec" in str(path.readlink())
    ]
    assert {path.name for path in links} == {
        path.name for path in (folder / "../libexec/diskproof").resolve().glob("diskproof-*")
    } - GUESTS
    for path in links:
        assert not path.readlink().is_absolute() and os.access(path, os.X_OK)
