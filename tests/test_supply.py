"""What diskproof is built from: lints of every crate, where packages come from, who audits them."""

import re
import tomllib
from pathlib import Path

import pytest

from diskproof.process import start as proc
from shape.rust_source import split_comments

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "native"
CRATES = sorted(path.parent for path in NATIVE.glob("*/*/Cargo.toml"))
DENIED = ("undocumented_unsafe_blocks", "unwrap_used", "expect_used")


def code_of(file: Path) -> str:
    return split_comments(file.read_text())[0]


def test_what_could_panic_or_is_not_explained_is_denied_everywhere() -> None:
    lints = tomllib.loads((NATIVE / "Cargo.toml").read_text())["workspace"]["lints"]
    assert {name: lints["clippy"][name] for name in DENIED} == dict.fromkeys(DENIED, "deny")
    assert lints["rust"]["unsafe_op_in_unsafe_fn"] == "deny"
    assert len(CRATES) > 20
    for crate in CRATES:
        assert tomllib.loads((crate / "Cargo.toml").read_text())["lints"] == {"workspace": True}


@pytest.mark.parametrize("crate", CRATES, ids=lambda crate: crate.name)
def test_exceptions_have_a_reason_and_crates_without_unsafe_stay_so(crate: Path) -> None:
    sources = sorted((crate / "src").rglob("*.rs"))
    for file in sources:
        for exception in re.findall(r"#!?\[(?:allow|expect)\([^]]*\]", file.read_text()):
            if any(lint in exception for lint in DENIED):
                assert exception.startswith("#[expect") and "reason = " in exception, file
    if not any(re.search(r"\bunsafe\b(?!_)", code_of(file)) for file in sources):
        roots = [file for file in sources if file.name in ("main.rs", "lib.rs")]
        roots = [file for file in roots if file.parent.name == "src"]
        assert roots and all("#![forbid(unsafe_code)]" in file.read_text() for file in roots)


def test_every_foreign_crate_comes_from_the_registry_with_its_checksum() -> None:
    packages = tomllib.loads((NATIVE / "Cargo.lock").read_text())["package"]
    ours = {crate.name for crate in CRATES}
    foreign = [package for package in packages if "source" in package]
    assert len(packages) - len(foreign) == len(ours)
    for package in foreign:
        assert package["source"].startswith("registry+"), package
        assert re.fullmatch("[0-9a-f]{64}", package["checksum"]), package


def test_what_cannot_be_audited_here_is_named_and_is_not_clean(tmp_path: Path) -> None:
    result = proc.run(
        [str(ROOT / "setup/audit-supply")], timeout=30, cwd=ROOT, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 3, result.text
    assert "not asked: Rust packages" in result.text
    assert "not asked: Python packages" in result.text
