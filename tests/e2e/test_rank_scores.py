"""``rank --weights`` as a user meets it, on the published results."""

import json
from pathlib import Path

import pytest

from support.commands import diskproof
from support.json_schemas import validate

SAMPLE = Path(__file__).parents[1] / "golden" / "kvm-perf-sample.txt"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    done = diskproof("import", "kvm-perf", SAMPLE, cwd=folder)
    assert done.returncode == 0, done.error_text
    return folder


def test_scores_follow_the_weights(imported: Path) -> None:
    (writes,) = json.loads(diskproof("rank", "--json", "--weights", "write=1", cwd=imported).text)
    alone = {load["workload"]: load["cells"] for load in writes["rankings"]}["write"]
    score = writes["score"]
    assert score["weights"] == {"write": 1} and score["holds_within"] == 1
    assert [cell["rank"] for cell in score["cells"][:4]] == [cell["rank"] for cell in alone[:4]]
    assert score["cells"][1]["score"] == pytest.approx(1 / alone[1]["ratio_to_best"])
    rankings = json.loads(diskproof("rank", "--json", cwd=imported).text)
    validate("rank", rankings)
    (both,) = rankings
    assert both["score"]["weights"] == {"read": 0.5, "write": 0.5}
    assert sum(cell["wins"] for cell in both["score"]["cells"]) == pytest.approx(1)
    assert both["score"]["cells"][0]["on_front"] and both["weighted_speed"] is None


def test_the_score_is_told_in_words(imported: Path) -> None:
    told = " ".join(diskproof("rank", "--weights", "read=3,write=1", cwd=imported).text.split())
    assert "(read 75%, write 25%)" in told and "has the best score" in told


@pytest.mark.parametrize("weights", ["reed=1", "read", "read=-1", "read=0", "read=nan"])
def test_wrong_weights(imported: Path, weights: str) -> None:
    wrong = diskproof("rank", "--weights", weights, cwd=imported)
    assert wrong.returncode == 2 and "--weights" in wrong.error_text
    assert "Traceback" not in wrong.error_text
