"""docs/cloud.md says what the tables of the dialects say."""

from pathlib import Path

import pytest

from diskproof.advice import container_disks, firecracker, kubevirt, nova
from diskproof.advice.documents import MAX_DEPTH, MAX_NODES

PAGE = (Path(__file__).parent.parent / "docs" / "cloud.md").read_text()


@pytest.mark.parametrize("row", [*kubevirt.MAPPING, *nova.MAPPING])
def test_rows_of_the_mapping_are_those_of_the_page(row: tuple[str, str, str]) -> None:
    assert f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" in PAGE


def test_the_page_names_the_versions_that_were_read() -> None:
    for source in (kubevirt.SOURCE, nova.SOURCE, firecracker.SOURCE, container_disks.SOURCE):
        words = source.replace(",", " ").split()
        assert words[1] in PAGE, source
    assert f"{MAX_DEPTH} levels, {MAX_NODES:,} nodes".replace(",000", " 000") in PAGE
