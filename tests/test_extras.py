"""Optional libraries: every one that pyproject.toml offers is asked for by name."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from diskproof.errors import HostError
from diskproof.process import extras
from diskproof.process.extras import EXTRAS, require_extra

ROOT = Path(__file__).parent.parent
OFFERED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_extra_on_offer_is_known_by_its_packages() -> None:
    asked = {
        name: [f"{each.name}[{','.join(each.extras)}]" if each.extras else each.name]
        for name, lines in OFFERED.items()
        for each in map(Requirement, lines)
    }
    assert asked == {name: list(extra.packages) for name, extra in EXTRAS.items()}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_missing_library_is_told_with_the_line_that_brings_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_extra(name)
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(HostError) as error:
        require_extra(name)
    assert EXTRAS[name].modules[0] in error.value.what
    assert "pipx inject diskproof" in error.value.hint
    assert f"diskproof[{name}]" in error.value.hint


def test_debians_package_does_not_send_anybody_to_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    monkeypatch.setattr(extras, "is_from_debian", lambda: True)
    with pytest.raises(HostError) as error:
        require_extra("parquet")
    assert "pip" not in error.value.hint and "Debian's package" in error.value.hint
