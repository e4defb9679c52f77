"""What the documents show works."""

import re
from pathlib import Path

import pytest

from diskproof.study.load import parse_study

ROOT = Path(__file__).parent.parent
EXAMPLES = [
    (path.name, number, text)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text(), re.DOTALL))
]


def test_there_are_examples() -> None:
    assert {"README.md", "study.md"} <= {name for name, _, _ in EXAMPLES}


@pytest.mark.parametrize(("name", "number", "text"), EXAMPLES)
def test_a_study_in_a_document_can_be_read(
    tmp_path: Path, name: str, number: int, text: str
) -> None:
    (tmp_path / "app.fio").write_text("[job]\nrw=randread\n")
    (tmp_path / "vm.qcow2").write_bytes(b"QFI\xfb")
    assert parse_study(text, name, tmp_path).workloads


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))])
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target
