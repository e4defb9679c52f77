"""Lines of every manager: never unsafe unasked, and what is read back from them was measured."""

import json
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.advice.dialect import Target
from diskproof.advice.dialects import DIALECTS
from diskproof.records import Cell, HostRecord
from diskproof.records.verdicts import DURABILITIES, FAULTS, Durability, Fault
from diskproof.report.advice.answer import (
    answers_json,
    find_answers,
    opening_lines,
    unsaid_sentence,
)
from diskproof.report.advice.choose import QEMU_DEFAULTS, Wish, disk_levels, recommend
from diskproof.report.advice.keeping import KEEPS
from diskproof.report.advice.words import answer_sentences
from diskproof.report.view import StudyView, rank_workloads
from diskproof.store.rows import ResultRow
from support.advice_views import CACHES, DAEMON, RACE, advice_view, by_cache

# -- nothing unsafe is ever printed -----------------------------------------------------------


@st.composite
def views(draw: st.DrawFn) -> StudyView:
    """Any cells with any verdicts, raced or not."""
    factors = {
        "frontend": draw(st.sampled_from([("daemon",), ("guest",), ("host", "daemon", "guest")])),
        "backing": ("ssd",),
        "format": draw(st.sampled_from([("raw",), ("qcow2",), ("raw", "qcow2")])),
        "cache": tuple(draw(st.sets(st.sampled_from(CACHES["cache"]), min_size=1))),
        "aio": draw(st.sampled_from([("threads",), ("threads", "native", "io_uring")])),
        "discard": draw(st.sampled_from([("ignore",), ("ignore", "unmap")])),
        "detect-zeroes": draw(st.sampled_from([("off",), ("off", "on", "unmap")])),
        "iothread": draw(st.sampled_from([("off",), ("off", "on")])),
        "bus": draw(st.sampled_from([("virtio-blk",), ("virtio-scsi", "ide", "nvme")])),
    }
    rng = random.Random(draw(st.integers(0, 2**32)))
    words = [*DURABILITIES, None, "keeps"]

    def judge(cell: Cell) -> Mapping[Fault, Durability]:
        found = {fault: rng.choice(words) for fault in FAULTS}
        return {fault: word for fault, word in found.items() if word}

    return advice_view(
        factors,
        judge=judge,
        blocks=draw(st.sampled_from([1, 2, 4])),
        seed=rng.randrange(10**6),
        text=draw(st.sampled_from(["", RACE])),
        keep=lambda cell: rng.random() < 0.2 or cell.level("cache") == "unsafe",
    )


@settings(max_examples=25, deadline=None)
@given(
    view=views(),
    keep=st.sampled_from(KEEPS),
    migrates=st.booleans(),
    target=st.sampled_from([Target(), Target("/dev/vg/disk", block=True), Target("/a.qcow2")]),
)
def test_unsafe_is_never_printed_without_disposable(
    view: StudyView, keep: str, migrates: bool, target: Target
) -> None:
    for dialect in DIALECTS.values():
        wish = Wish(keep, migrates)  # type: ignore[arg-type]
        for answer in find_answers(view, wish, dialect, target):
            if answer.paste is None:
                assert answer.found.chosen is None
                continue
            written = answer.paste.text + answer.paste.create
            assert "unsafe" not in written
            assert '"no-flush":true' not in written.replace(" ", "")
            best = answer.found.chosen or answer.unsaid
            assert best is not None
            wanted = {**disk_levels(best.cell), **answer.instead}
            read = dialect.read(answer.paste.text, target)
            wrong = {name for name in read.keys() & wanted.keys() if read[name] != wanted[name]}
            assert not wrong, (dialect.name, wrong, wanted, answer.paste.text)
            if answer.found.chosen is None:
                assert answer.instead and not answer.keeps
                continue
            assert not answer.found.chosen.keeping.bars
            if migrates:
                assert answer.found.chosen.cell.level("cache") in ("none", "directsync")
            if keep != "none":
                assert answer.found.chosen.keeping.word in ("keeps", "undecided", "not judged")


@pytest.mark.parametrize("seed", range(6))
def test_wild_figures_break_no_answer(seed: int) -> None:
    """Noughts, stalls of fifteen decades, cells with a run or two, loads without any writes."""
    rng = random.Random(seed)
    study = advice_view({**DAEMON, "frontend": ("daemon", "guest")}, ("a", "b")).study
    rows = []
    for cell in study.cells:
        count = rng.choice([1, 2, 4])
        values = tuple(
            rng.choice([0.0, 1e-9, 100.0, rng.lognormvariate(5, 9)]) for _ in range(count)
        )
        ids = tuple(f"{cell.id}-{number}" for number in range(count))
        higher = cell.workload.name == "a"
        row = ("s1", "h1", cell, "iops", "1/s", higher, True, values, tuple(range(count)), ids)
        rows.append(ResultRow(*row))
    view = StudyView(study, HostRecord("h1", "wild", {}), rank_workloads(study, rows))
    for dialect in DIALECTS.values():
        answers = find_answers(view, Wish(), dialect, Target())
        assert len(answers) == 2
        json.dumps(answers_json(view, answers), allow_nan=False)
        for answer in answers:
            assert all(opening_lines(answer)) and not answer.keeps
            assert "nan" not in " ".join(answer_sentences(answer.found)).lower()


# -- what a dialect cannot say ------------------------------------------------------------------


def test_what_cannot_be_said_is_refused_with_reason_and_the_best_sayable_taken() -> None:
    factors = {"frontend": ("guest",), "cache": ("none",), "bus": ("nvme", "virtio-scsi")}
    view = advice_view(factors, speeds={("bus", "nvme"): 2.0})
    (answer,) = find_answers(view, Wish(), DIALECTS["proxmox"], Target())
    assert answer.found.chosen is not None
    assert answer.found.chosen.cell.level("bus") == "virtio-scsi"
    assert "bus=nvme cannot be said" in unsaid_sentence(answer)
    assert "the nearest is bus=virtio-scsi" in unsaid_sentence(answer)
    (free,) = find_answers(view, Wish(), DIALECTS["qemu"], Target())
    assert free.found.chosen is not None and free.found.chosen.cell.level("bus") == "nvme"
    assert unsaid_sentence(free) == ""


@pytest.mark.parametrize("name", ["qemu", "libvirt", "proxmox"])
def test_an_image_that_is_there_keeps_its_format(name: str) -> None:
    """Raw is faster here, and would show the guest of a qcow2 image that image's inside."""
    view = advice_view(DAEMON, speeds={("format", "qcow2"): 0.5, ("cache", "writeback"): 2.0})
    (free,) = find_answers(view, Wish(), DIALECTS[name], Target())
    assert free.found.chosen is not None and free.found.chosen.cell.level("format") == "raw"
    (answer,) = find_answers(view, Wish(), DIALECTS[name], Target("/images/disk.qcow2"))
    assert answer.found.chosen is not None and answer.paste is not None
    assert answer.found.chosen.cell.level("format") == "qcow2"
    assert "the image that is there is qcow2" in unsaid_sentence(answer)
    found = Target("/images/disk.img", existing=answer.paste.text)
    (again,) = find_answers(view, Wish(), DIALECTS[name], found)
    assert again.found.chosen is not None
    assert again.found.chosen.cell.level("format") == "qcow2"


def test_where_no_cell_can_be_said_the_nearest_is_told_and_is_not_called_safe() -> None:
    view = advice_view({**CACHES, "discard": ("ignore",)})
    (answer,) = find_answers(view, Wish(), DIALECTS["incus"], Target())
    assert answer.paste is not None and answer.instead == {"discard": "unmap"}
    assert not answer.keeps and answers_json(view, [answer])["answers"][0]["keeps"] is False
    assert dict(answer.conditions)["not measured"] == "discard=unmap"
    told = " ".join(opening_lines(answer))
    assert "what it keeps is not known" in told and "Incus passes every discard on" in told


@pytest.mark.parametrize("name", DIALECTS)
def test_the_line_says_the_chosen_levels(name: str) -> None:
    """Whatever the dialect says of a disk is what was measured, read back from its own line."""
    dialect, target = DIALECTS[name], Target("/images/disk.raw")
    view = advice_view({**DAEMON, "frontend": ("guest",), "bus": ("virtio-scsi",)})
    for answer in find_answers(view, Wish(), dialect, target):
        assert answer.paste is not None and answer.found.chosen is not None
        wanted = disk_levels(answer.found.chosen.cell)
        read = dialect.read(answer.paste.text, target)
        for factor in read.keys() & wanted.keys():
            assert read[factor] == wanted[factor], (factor, answer.paste.text)


def test_json_has_all_of_it() -> None:
    view = advice_view(DAEMON, ("rand-read", "sync-write"))
    answers = find_answers(view, Wish(), DIALECTS["qemu"], Target())
    told = answers_json(view, answers)
    first = told["answers"][0]
    assert first["paste"]["text"] and first["conditions"]["verdict"] and first["sentences"]
    assert first["chosen"]["keeping"] == "keeps" and first["faster"][0]["rules"] == ["no-flush"]
    assert by_cache(view.study.cells[0])["power"] == "keeps"
    assert set(QEMU_DEFAULTS) >= {"cache", "aio", "bus"}
    assert recommend(view, view.workloads[0]).chosen is not None
