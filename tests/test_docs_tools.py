"""The tools that the documents name are on the PATH of an activated environment."""

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


def test_all_that_is_built_for_people_is_on_the_path_and_no_more() -> None:
    prefix = Path(sys.prefix)
    installed = {path.name for path in (prefix / "bin").glob("diskproof-*")}
    assert installed == find_programs() - GUESTS
    parts = {path.name for path in (prefix / "libexec" / "diskproof").iterdir()}
    assert parts - GUESTS == {path for path in parts if path.endswith(".so")}
    assert parts >= GUESTS
