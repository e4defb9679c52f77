"""docs/proxmox-incus.md says what the tables of the dialects say."""

from pathlib import Path

import pytest

from diskproof.advice import incus, proxmox

PAGE = (Path(__file__).parent.parent / "docs" / "proxmox-incus.md").read_text()


@pytest.mark.parametrize("row", [*proxmox.MAPPING, *incus.MAPPING])
def test_rows_of_the_mapping_are_those_of_the_page(row: tuple[str, str, str]) -> None:
    assert f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" in PAGE


def test_the_page_names_what_was_read() -> None:
    assert proxmox.DIALECT.source in PAGE
    assert incus.DIALECT.source in PAGE
