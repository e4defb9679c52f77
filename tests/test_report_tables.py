"""Terminal tables at 80 columns: nothing that matters is cut, nothing hostile gets through."""

import io
from dataclasses import replace

from rich.console import Console, RenderableType

from diskproof.records import Failure
from diskproof.report.barred import Bars
from diskproof.report.labels import render_half_width, too_few_text
from diskproof.report.plan_tables import render_plan
from diskproof.report.progress import render_status, study_status
from diskproof.report.ranking.table import render_ranking
from diskproof.report.ranking.words import winner_sentence
from diskproof.report.runs.table import render_failures
from diskproof.report.study_tables import render_study
from diskproof.report.view import StudyView
from diskproof.stats.intervals import mean_interval, runs_for
from diskproof.store.rows import RunCounts
from support.report_views import FACTORS, HOSTILE, make_view

WIDE = {
    **FACTORS,
    "preallocation": ("off", "metadata", "full"),
    "bus": ("virtio-blk", "virtio-scsi"),
    "lazy_refcounts": ("off", "on"),
}


def plain(content: RenderableType, width: int = 80) -> str:
    sink = io.StringIO()
    Console(file=sink, width=width, highlight=False).print(content)
    return sink.getvalue()


def test_eighty_columns_cut_nothing() -> None:
    view = make_view(WIDE, ["sync-write-4k"], details=False)
    text = plain(render_ranking(view.workloads[0], Bars(view.study)))
    assert max(map(len, text.splitlines())) <= 80
    assert "\u2026" not in text and "..." not in text
    flat = "".join(text.split())
    for line in view.workloads[0].lines[:20]:
        for word in line.label.split():
            assert word in flat
    for head in ("#", "cell", "n", "mean", "\u00b195%", "p50", "p99", "p99.9", "flush"):
        assert head in text


def test_head_says_what_a_reader_must_know() -> None:
    text = plain(render_study(make_view(details=False), best=3))
    answers, _, rest = text.partition("\n\nstudy ")
    assert answers.startswith("For rand-read-4k-d1 ") and "\n\nFor sync-write-4k " in answers
    head = " ".join(rest.split())[:120]
    for word in ("disk-study", "lab-one", "TCG", "seed 42", "320 runs", "1 failed"):
        assert word in head
    assert "does not distort" in " ".join(text.split())
    assert "warning: 64 MiB" in text
    assert "29 more cells" in " ".join(text.split())
    assert "aio=native needs direct I/O" in text


def test_plain_when_not_a_terminal() -> None:
    assert "\x1b" not in plain(render_study(make_view(details=False)))


def test_hostile_text_stays_text() -> None:
    view = make_view(details=False, name=HOSTILE)
    text = plain(render_failures(view.study, view.parts["runs"]), width=400)
    assert "\x1b" not in text and "\x07" not in text
    assert "[bold]x[/bold]" in text
    assert "[bold]x[/bold]" in "".join(plain(render_study(view), width=400).splitlines())


def test_equal_failures_are_counted() -> None:
    view = make_view(details=False)
    runs = view.parts["runs"]
    thrice = replace(runs, failures=runs.failures * 3)
    text = plain(render_failures(view.study, thrice), width=300)
    assert text.count("kernel panic") == 1
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["3", "3"]


def test_the_number_of_a_handle_makes_no_other_reason() -> None:
    view = make_view(details=False)
    runs = view.parts["runs"]
    (failed,) = runs.failures
    refused = [
        replace(failed, failure=Failure("tool", "qemu ended", f"'/dev/fdset/{at}': {why}"))
        for at, why in [(8, "no"), (9, "no"), (9, "status 1"), (9, "status 2")]
    ]
    text = plain(render_failures(view.study, replace(runs, failures=refused)), width=300)
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["2", "2", "1", "1", "1", "1"]
    assert "/dev/fdset/8': no" in text


def test_words_for_each_outcome() -> None:
    safe = {**FACTORS, "cache": ("none", "writeback", "writethrough")}
    assert "has the best mean" in winner_of(make_view(safe, details=False))
    two = winner_of(make_view({"cache": ("none", "writeback")}, details=False))
    assert "wins with" in two and "ahead of" in two
    single = make_view(safe, runs=1, details=False)
    assert "a single run proves nothing" in winner_of(single)
    assert {line.ranked.label for line in single.workloads[0].lines} == {"?"}
    assert "only cell" in winner_of(make_view({"cache": ("none",)}, details=False))


def test_a_single_run_beside_a_winner_is_not_told_apart() -> None:
    view = make_view({"cache": ("none", "writeback")}, details=False)
    load = view.workloads[0]
    alone = replace(load.lines[1], ranked=replace(load.lines[1].ranked, groups=(), rank=None))
    told = winner_sentence(replace(load, lines=(load.lines[0], alone)), Bars(view.study))
    assert "wins" not in told and "has the best mean" in told


def winner_of(view: StudyView) -> str:
    return winner_sentence(view.workloads[0], Bars(view.study))


def test_what_drops_flushes_is_marked_and_never_wins() -> None:
    view = make_view(details=False)
    told = winner_of(view)
    assert not told.startswith(view.workloads[0].lines[0].label)
    assert " has a better mean and drops flushes." in told
    assert "is fit for use" in winner_of(make_view({"cache": ("unsafe",)}, details=False))
    lines = plain(render_ranking(view.workloads[0], Bars(view.study)), 200).splitlines()
    rows = [line for line in lines if line[:1].isdigit() or line.startswith("?")]
    assert len(rows) == 32 and sum(" !" in row for row in rows) == 8
    assert all((" ! " in row) == ("unsafe" in row) for row in rows)
    assert "! drops flushes: what a program was promised may be lost" in " ".join(lines)


def test_blocks_that_are_planned_no_more_are_told() -> None:
    study = make_view(details=False).study
    status = study_status(study, RunCounts(4, 8, 0), None, 0.0)
    text = " ".join(plain(render_status([status])).split())
    assert f"{study.name} {study.id} done 8 of 4 planned (4 more from before)" in text
    assert "4/4" in plain(render_status([study_status(study, RunCounts(4, 4, 0), None, 0.0)]))


def test_a_plan_marks_what_drops_flushes_with_its_source() -> None:
    text = " ".join(plain(render_plan(make_view(details=False).study, 60.0, 1 << 30)).split())
    assert "unsafe !" in text or "unsafe io_uring !" in text or "unsafe native !" in text
    assert "does not carry out flushes (cache=unsafe, by QEMU's manual)" in text


def test_too_few_runs_are_told_with_what_would_do() -> None:
    wide = mean_interval((100.0, 900.0))
    assert wide.says_nothing and render_half_width(wide) == "too few"
    needed = runs_for(wide, 0.25)
    assert needed is not None and f"about {needed} blocks in all" in too_few_text([wide])
    enough = mean_interval((100.0, 900.0) * (needed // 2))
    assert enough.half_width is not None and enough.half_width <= 0.27 * enough.mean
    assert too_few_text([mean_interval((100.0, 101.0)), mean_interval((5.0,))]) == ""
