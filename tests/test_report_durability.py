"""Durability beside speed: which verdict stands beside which cell, in tables, JSON and page."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from diskproof.cli import run_command_line
from diskproof.records import Cell, HostRecord, Metric, RunRecord, StudyRecord, WorkloadSpec
from diskproof.records.verdicts import COVERED, FAULTS, CrashRun, Fault, Verdict, VerdictRow
from diskproof.report.crash.cell_names import crash_labels
from diskproof.report.durability import (
    CellDurability,
    deciding_levels,
    durability_sentence,
    further_words,
    join_verdicts,
    profiles_text,
    render_age,
    short_text,
    states_text,
    timeline_caption,
    verdict_text,
)
from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.report.study_tables import ranking_json, render_study
from diskproof.store import Store, open_store
from diskproof.study.crash import beside_writeback
from support.crashing import LOSS, make_crash_run, make_verdict

LEVELS = {"frontend": "daemon", "format": "raw", "aio": "threads", "backing": "ssd"}
LOAD = WorkloadSpec("sync", "fio", (("rw", "write"),))


def make_row(verdict: Verdict, writer: str = "ledger", **levels: str) -> VerdictRow:
    run = make_crash_run(1, verdict, writer=writer, **{**LEVELS, **levels})
    return VerdictRow("s1", "h1", run.id, run.cell, verdict)


def test_a_verdict_is_about_every_cell_with_the_same_disk() -> None:
    row = make_row(LOSS, cache="unsafe")
    joined = join_verdicts([row])
    same = Cell(tuple(sorted({**LEVELS, "cache": "unsafe", "backing": "hdd"}.items())), LOAD)
    other = Cell(tuple(sorted({**LEVELS, "cache": "none"}.items())), LOAD)
    assert joined[deciding_levels(same)].worst == row
    assert deciding_levels(other) not in joined


def test_a_second_run_of_a_program_has_its_own_name_and_its_own_word() -> None:
    kept = make_verdict("power")
    rows = [make_row(each) for each in (kept, replace(kept, verdict="undecided"))]
    rows[1] = replace(rows[1], cell=beside_writeback(rows[1].cell))
    (joined,) = join_verdicts(rows).values()
    assert joined.worst == rows[1], "what was kept alone does not answer it"
    names = crash_labels(rows)
    assert names[0] + " beside=writeback" == names[1]
    others = [make_row(kept, cache=cache) for cache in ("none", "unsafe")]
    more = [*others, replace(others[1], cell=beside_writeback(others[1].cell))]
    assert crash_labels(more) == ["none", "unsafe", "unsafe beside=writeback"]


verdicts = st.builds(
    Verdict,
    st.sampled_from(FAULTS),
    st.sampled_from(["keeps", "loses", "corrupts", "undecided"]),
    lost=st.integers(0, 9),
    age_seconds=st.floats(0, 9),
)


@given(st.lists(st.tuples(verdicts, st.sampled_from(["ledger", "sqlite"])), min_size=1))
def test_a_loss_that_was_found_stays_found(found: list[tuple[Verdict, str]]) -> None:
    (joined,) = join_verdicts([make_row(*each) for each in found]).values()
    assert set(joined.by_fault) == {verdict.fault for verdict, _ in found}
    for fault, row in joined.by_fault.items():
        by_writer: dict[str, set[str]] = {}
        for verdict, writer in found:
            if verdict.fault == fault:
                by_writer.setdefault(writer, set()).add(verdict.verdict)
        # Only its own writer answers what is undecided.
        kinds = {kind for each in by_writer.values() for kind in each - {"undecided"} or each}
        order = ["corrupts", "loses", "undecided", "keeps"]
        assert row.verdict.verdict == next(kind for kind in order if kind in kinds)
    shown = short_text(joined)
    if not any(verdict.counts for verdict, _ in found):
        assert shown == "-"
    # Nobody may read "keeps" where one of the faults is not decided.
    kinds = {str(r.verdict.verdict) for r in joined.by_fault.values() if r.verdict.counts}
    assert shown != "keeps" or kinds == {"keeps"}


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (make_verdict(), "keeps"),
        (LOSS, "loses 3, 1.2 s"),
        (replace(LOSS, age_seconds=0.0123), "loses 3, 12 ms"),
        (replace(LOSS, verdict="corrupts", lost=0), "corrupts"),
        (replace(LOSS, verdict="corrupts"), "corrupts, loses 3"),
        (Verdict("power", "undecided"), "undecided"),
    ],
)
def test_verdicts_in_a_table(verdict: Verdict, text: str) -> None:
    assert verdict_text(verdict) == text


def test_how_many_states_of_how_many() -> None:
    assert states_text(make_verdict()) == "9 of 9"
    assert states_text(LOSS) == "12 of about 400"
    assert states_text(replace(LOSS, states_total=None)) == "12 of ?"
    assert states_text(replace(LOSS, states_total=12)) == "12 of ?"
    assert states_text(replace(LOSS, states_total=3 * 10**9)) == "12 of about 3e+09"


@given(st.floats(0, 1e5))
def test_ages_are_short(seconds: float) -> None:
    assert len(render_age(seconds)) <= 9


def measured(cell: Cell, block: int, value: float) -> RunRecord:
    metric = Metric("iops", "1/s", value, higher_is_better=True, primary=True)
    run_id = f"{cell.id}-{block}"
    return RunRecord(run_id, "s1", cell, block, 0, 1.0, 2.0, "ok", "h1", metrics=(metric,))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A measured study, and verdicts on its two disks in another one."""
    cells = [
        Cell(tuple(sorted({**LEVELS, "cache": cache}.items())), LOAD)
        for cache in ("none", "unsafe")
    ]
    opened = open_store(str(tmp_path / "s.sqlite"), create=True)
    opened.add_host(HostRecord("h1", "lab", {}))
    opened.add_study(StudyRecord("s1", "speeds", "run", "", 1, 2, tuple(cells)))
    opened.add_study(StudyRecord("c1", "crashes", "run", "", 1, 1, ()))
    for block in range(3):
        for place, cell in enumerate(cells):
            opened.add_run(measured(cell, block, 1000 * (1 + 9 * place) + block))
    for number, (cache, loss) in enumerate((("none", make_verdict("power")), ("unsafe", LOSS))):
        opened.add_crash_run(crash_run(number, loss, cache))
    return opened


def crash_run(number: int, verdict: Verdict, cache: str) -> CrashRun:
    lying: Fault = "lying-device"
    both = (verdict, replace(LOSS, fault=lying))
    levels = {**LEVELS, "cache": cache, "backing": "other"}
    return make_crash_run(number, *both, study_id="c1", **levels)


def shown(view: object) -> str:
    text = io.StringIO()
    Console(width=80, file=text).print(view)
    return text.getvalue()


def test_show_tells_of_verdicts_which_are_no_results(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["show", "--store", str(tmp_path / "s.sqlite"), "--study"]
    for study, has_results in (("crashes", False), ("speeds", True)):
        assert run_command_line([*words, study]) == 0
        told = capsys.readouterr().out
        assert ("4 crash verdicts" in told, "iops" in told) == (not has_results, has_results)
        assert "no results" not in told and "tile run" not in told


def test_the_column_stands_beside_the_speed(store: Store) -> None:
    crashes, speeds = read_views(store)
    text = " ".join(shown(render_study(speeds)).split())
    assert "crash" in text and "keeps" in text and "loses 3," in text
    assert max(map(len, shown(render_study(speeds)).splitlines())) <= 80
    ranking = ranking_json(speeds, None, 0)["rankings"]
    assert isinstance(ranking, list)
    first, second = ranking[0]["cells"]
    assert [each["fault"] for each in first["durability"]] == ["power", "lying-device"]
    assert (first["durability"][0]["verdict"], first["durability"][0]["lost"]) == ("loses", 3)
    assert second["durability"][0]["verdict"] == "keeps"
    text = shown(render_study(crashes))
    assert "what a crash leaves" in text and "lying-device" in text


def test_the_page_has_scatter_timeline_and_verdicts(store: Store) -> None:
    views = read_views(store, details=True)
    page = render_page(views)
    assert "What does a crash leave of each cell?" in page
    assert "Speed against the worst loss" in page and "loses acknowledged writes" in page
    assert "The smallest loss that was found for" in page
    assert "1 of 2 crash cells kept all acknowledged writes" in page
    raw = json.loads(page.split('id="raw">', 1)[1].split("</script>", 1)[0])
    assert [row["durability"][0]["verdict"] for row in raw if "runs" in row] == ["loses", "keeps"]
    assert sum(row.get("fault") == "lying-device" for row in raw) == 2


def test_the_caption_of_a_loss_that_cannot_be_counted() -> None:
    counted, broken = LOSS, replace(LOSS, verdict="corrupts", lost=0, age_seconds=0.0)
    assert "3 acknowledged writes are lost" in timeline_caption("x", counted)
    assert timeline_caption("x", broken).endswith("durable. The worst state cannot be used.")
    one = timeline_caption("x", replace(LOSS, lost=1, missing=()))
    assert "all that had been written to the disk was there" in one
    assert "one acknowledged write is lost" in one


def test_without_verdicts_nothing_is_said(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "s.sqlite"), create=True) as opened:
        cell = Cell((("cache", "none"),), LOAD)
        opened.add_host(HostRecord("h1", "lab", {}))
        opened.add_study(StudyRecord("s1", "speeds", "run", "", 1, 1, (cell,)))
        opened.add_run(measured(cell, 0, 5.0))
        (view,) = read_views(opened, details=True)
    assert "crash" not in shown(render_study(view))
    assert "crash" not in render_page([view]).split("<script")[0].replace("crash-", "")
    assert short_text(None) == "-"
    assert durability_sentence([]) == ""
    assert CellDurability({}).worst is None


def test_what_was_kept_so_far_says_how_long_a_whole_search_takes() -> None:
    covered = {"acknowledgements": (0, 256), "changes": (0, 739)}
    verdict = Verdict(
        "power", "undecided", states_checked=18, seconds=10.0, details={COVERED: covered}
    )
    told = " ".join(further_words([make_row(verdict)]))
    assert 'explore_seconds = "10m" under [crash]' in told  # (18 + 995) states at 1.8 a second
    unknown = replace(verdict, details={COVERED: None})
    assert "a longer explore_seconds" in " ".join(further_words([make_row(unknown)]))


def test_rules_that_say_the_same_are_named_together() -> None:
    verdicts = [
        Verdict("power", "loses", lost=1200),
        Verdict("power-ext4", "keeps"),
        Verdict("power-xfs", "keeps"),
    ]
    so_far = Verdict("power-btrfs", "undecided", details={COVERED: None})
    told = profiles_text([*verdicts, so_far])
    rules = "a power cut, by the rules of posix: loses 1,200; ext4, xfs: keeps"
    assert told == f"{rules}; btrfs: kept so far"
    f2fs = replace(so_far, fault="power-f2fs")
    assert profiles_text([*verdicts, so_far, f2fs]) == (
        f"{rules}; btrfs, f2fs: kept so far. On Linux the first fsync after a mount or a "
        "checkpoint of f2fs does not wait for what it writes: --profiles f2fs-unwaited judges by "
        "that"
    )
    unwaited = Verdict("power-f2fs-unwaited", "loses", lost=1)
    assert profiles_text([*verdicts, so_far, f2fs, unwaited]) == (
        f"{rules}; btrfs, f2fs: kept so far; f2fs-unwaited: loses 1. On f2fs an fsync of the "
        "directory behind that of the file is waited for"
    )
    kept = replace(unwaited, verdict="keeps", lost=0)
    assert profiles_text([f2fs, kept]).endswith("f2fs: kept so far; f2fs-unwaited: keeps")
    assert profiles_text(verdicts[:1]) == ""
    lost = Verdict("power-btrfs", "loses", lost=2)
    assert profiles_text([*verdicts, lost]).endswith("ext4, xfs: keeps; btrfs: loses 2")
