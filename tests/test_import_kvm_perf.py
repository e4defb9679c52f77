"""The published text of kvm-perf: its figures, other layouts of it, and what is not it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diskproof.errors import UsageError
from diskproof.stats.intervals import student_interval
from diskproof.store import open_store
from diskproof.store.formats.kvm_perf import import_kvm_perf
from diskproof.store.formats.kvm_perf_text import MAX_TIMES
from diskproof.store.show import show_rows

SAMPLE = (Path(__file__).parent / "golden" / "kvm-perf-sample.txt").read_bytes()
HEADER = "type raw cache none aio native if virtio prealloc no"
Values = tuple[float, ...]


def imported_times(text: str | bytes) -> dict[tuple[tuple[str, str], ...], dict[str, Values]]:
    """Times by levels and workload, out of the runs alone."""
    data = text if isinstance(text, bytes) else text.encode()
    found: dict[tuple[tuple[str, str], ...], dict[str, Values]] = {}
    for run in import_kvm_perf(data, "results").runs:
        times = found.setdefault(run.cell.levels, {})
        name = run.cell.workload.name
        assert run.block == len(times.get(name, ()))
        times[name] = (*times.get(name, ()), run.metrics[0].value)
    return found


def block(header: str, times: Mapping[str, Sequence[float]], *, times_format: str = "[{}]") -> str:
    lines = [header]
    for name, values in times.items():
        lines.append(f"{name}s: " + times_format.format(", ".join(map(repr, values))))
    for name, values in times.items():
        interval = student_interval(values)
        half = float("nan") if interval.half_width is None else interval.half_width
        lines.append(f"{name}interval: {interval.mean:f} +/- {half:f}")
    return "\n".join(lines) + "\n"


def test_every_printed_figure_of_the_sample_is_shown(tmp_path: Path) -> None:
    """The figures are read from the text here by other means than the importer's."""
    found = import_kvm_perf(SAMPLE, "kvm-perf")
    assert found.notes == ()
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        store.add_imported(found.study, found.host, found.runs)
        results = store.results("kvm-perf")
        rows = show_rows(results, store.figures(results), [])
    names = {"if": "bus", "type": "format", "prealloc": "preallocation"}
    ours = {"virtio": "virtio-blk", "yes": "metadata", "no": "off"}
    checked = 0
    for part in SAMPLE.decode().split("\n\n")[1:]:
        words = part.splitlines()[0].split()
        pairs = zip(words[::2], words[1::2], strict=True)
        cell = {names.get(name, name): ours.get(level, level) for name, level in pairs}
        for workload in ("read", "write"):
            printed = re.search(rf"{workload}interval: (\S+) \+/- (\S+)", part)
            single = re.search(rf"{workload}s: \[(.*)\]", part)
            assert printed and single
            (row,) = (
                r for r in rows
                if r["cell"] == {**cell, "frontend": "guest"} and r["workload"] == workload
            )  # fmt: skip
            assert row["runs"] == [float(word) for word in single[1].split(",")]
            assert (row["metric"], row["unit"], row["primary"]) == ("seconds", "s", True)
            assert row["higher_is_better"] is False
            assert row["mean"] == pytest.approx(float(printed[1]), abs=1e-4, rel=0)
            assert row["ci95"] == pytest.approx(float(printed[2]), abs=1e-4, rel=1e-6)
            checked += 2
    assert checked == 84 and len(rows) == 42


def test_a_second_import_adds_nothing(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        for _ in range(2):
            found = import_kvm_perf(SAMPLE, "kvm-perf")
            store.add_imported(found.study, found.host, found.runs)
        assert len(store.runs(found.study.id)) == len(found.runs) == 240
        assert [study.text for study in store.studies()] == [SAMPLE.decode()]


WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.", min_size=1, max_size=12)
TIMES = st.lists(st.floats(0.001, 1e4).map(lambda x: round(x, 3)), min_size=1, max_size=12)
TABLES = st.lists(
    st.tuples(WORD, WORD, WORD, st.booleans(), TIMES, TIMES),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[:4],
)


@given(
    table=TABLES,
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    gap=st.sampled_from([" ", "\t", "  \t ", ": ", "="]),
    style=st.sampled_from(["[{}]", "[ {} ]", "{}", "({})"]),
    noise=st.sampled_from(["", "\n\n", "# a comment\n", "that is all\n", "----\n"]),
    reverse=st.booleans(),
)
@example([("0", "0", "0", False, [1.0], [1.0, 1.0])], "\n", " ", "[{}]", "", False)  # equal times
def test_whatever_the_layout_the_same_is_read(
    table: list[tuple[str, str, str, bool, list[float], list[float]]],
    newline: str,
    gap: str,
    style: str,
    noise: str,
    reverse: bool,
) -> None:
    text, expected = "", {}
    for kind, cache, bus, allocated, reads, writes in table:
        pairs = [("type", kind), ("cache", cache), ("if", bus)]
        pairs.append(("prealloc", "yes" if allocated else "no"))
        if reverse:
            pairs.reverse()
        header = " ".join(f"{name}{gap}{level}" for name, level in pairs)
        text += noise + block(header, {"read": reads, "write": writes}, times_format=style)
        bus = {"virtio": "virtio-blk", "scsi": "virtio-scsi"}.get(bus, bus)
        levels = {"format": kind, "cache": cache, "bus": bus, "frontend": "guest"}
        levels["preallocation"] = "metadata" if allocated else "off"
        expected[tuple(sorted(levels.items()))] = {"read": tuple(reads), "write": tuple(writes)}
    assert imported_times(text.replace("\n", newline)) == expected


@pytest.mark.parametrize("what", ["read", "write"])
@pytest.mark.parametrize("figure", [0, 1])
def test_a_figure_that_does_not_follow_from_the_times_is_named(what: str, figure: int) -> None:
    lines = SAMPLE.decode().splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith(f"{what}interval"))
    words = lines[place].split()
    right = words[1 + 2 * figure]
    words[1 + 2 * figure] = wrong = f"{float(right) + 0.0005:.6f}"
    lines[place] = " ".join(words)
    with pytest.raises(UsageError) as caught:
        import_kvm_perf("\n".join(lines).encode(), "file.txt")
    assert f"file.txt:{place + 1}:" in caught.value.what
    assert wrong in caught.value.why and right[:5] in caught.value.why and caught.value.hint


@given(st.integers(0, 20), st.integers(0, 11), st.floats(0.01, 50))
def test_a_changed_time_is_always_noticed(which: int, place: int, change: float) -> None:
    lines = SAMPLE.decode().splitlines()
    lists = [n for n, line in enumerate(lines) if line.startswith(("reads", "writes"))]
    line = lists[which]
    values = [float(word) for word in lines[line].partition("[")[2].rstrip("]").split(",")]
    values[place % len(values)] += change
    lines[line] = f"{lines[line].partition('[')[0]}{values}"
    with pytest.raises(UsageError, match="not imported"):
        import_kvm_perf("\n".join(lines).encode(), "file.txt")


def test_sections_hosts_and_kernels_become_levels_where_they_differ() -> None:
    times = {"read": (1.0, 2.0)}
    text = f"kernel: 3.2.0\n==== ext4: ====\n{block(HEADER, times)}"
    text += f"\n----- xfs -----\n{block(HEADER, {'read': (3.0, 4.0)})}"
    found = import_kvm_perf(text.encode(), "two")
    sections = [cell.level("section") for cell in found.study.cells]
    assert sections == ["ext4", "xfs"]
    assert found.host.facts["kernel"] == "3.2.0"
    assert all(cell.level("kernel") == "" for cell in found.study.cells)
    hosts = text.replace("==== ext4: ====", "host: a").replace("----- xfs -----", "host b")
    cells = import_kvm_perf(hosts.encode(), "two").study.cells
    assert [cell.level("host") for cell in cells] == ["a", "b"]


def test_what_is_measured_again_is_kept_apart_and_a_copy_is_left_out() -> None:
    first, second = block(HEADER, {"read": (1.0, 2.0)}), block(HEADER, {"read": (3.0, 4.0)})
    found = import_kvm_perf((first + second + first).encode(), "again")
    assert sorted(run.metrics[0].value for run in found.runs) == [1.0, 2.0, 3.0, 4.0]
    assert len(found.study.cells) == 2 and len(found.notes) == 2
    assert "again" in found.notes[0] and "left out" in found.notes[1]


def test_missing_parts_are_noted_not_invented() -> None:
    assert import_kvm_perf(block("type raw", {"write": (2.5,)}).encode(), "x").notes == ()
    text = f"{HEADER}\nreads: [1.0, 2.0]\n\n{HEADER.replace('none', 'unsafe')}\nreads: []\n"
    found = import_kvm_perf(text.encode(), "x")
    assert len(found.runs) == 2
    assert "no read interval" in found.notes[0] and "no read times" in found.notes[1]


def test_notes_are_no_flood() -> None:
    text = "".join(f"type raw cache c{n}\nreads: [1.0]\n" for n in range(1000))
    notes = import_kvm_perf(text.encode(), "x").notes
    assert len(notes) == 51 and notes[-1].startswith("and 950 more")


def test_a_summary_beside_the_results_adds_nothing() -> None:
    results = block(HEADER, {"read": (1.0, 2.0)})
    summary = f"Sorted by time:\n{HEADER}: 1.5 +/- 6.3\n{HEADER}\nreadinterval: 1.5 +/- 6.3\n"
    for text in (results + summary, summary + results):
        found = import_kvm_perf(text.encode(), "both")
        assert len(found.runs) == 2 and len(found.study.cells) == 1
        assert found.study.cells[0].level("section") == ""
        assert "without times" in found.notes[0] and "no results" in found.notes[1]


def test_text_copied_from_a_page() -> None:
    page = f"<pre>{block(HEADER, {'read': (1.0, 2.0)})}</pre><br/>"
    assert len(import_kvm_perf(page.encode(), "page").runs) == 2
    heads = f"on xfs:\n{block(HEADER, {'read': (1.0,)})}on ext4:\n"
    found = import_kvm_perf((heads + block(HEADER, {"read": (1.0,)})).encode(), "heads")
    assert [cell.level("section") for cell in found.study.cells] == ["on xfs", "on ext4"]


def test_a_list_over_several_lines_and_comments() -> None:
    text = f"# by hand\n{HEADER}  # the fast one\nreads: [1.0,\n  2.0,\n 3.0]\n"
    ((_, times),) = imported_times(text).items()
    assert times == {"read": (1.0, 2.0, 3.0)}


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("reads: [1.0]", 1, "before any configuration"),
        ("readinterval: 1 +/- 2", 1, "before any configuration"),
        (f"{HEADER}\nreads: [1.0, x]", 2, "'x' is not a time"),
        (f"{HEADER}\nreads: [1.0, nan]", 2, "'nan' is not a time"),
        (f"{HEADER}\nreads: [1.0, inf]", 2, "'inf' is not a time"),
        (f"{HEADER}\nreads: [-1.0]", 2, "'-1.0' is not a time"),
        (f"{HEADER}\nreads: [1e99]", 2, "'1e99' is not a time"),
        (f"{HEADER}\nreads: [1_0]", 2, "'1_0' is not a time"),
        (f"{HEADER}\nreads: [\u0661]", 2, "is not a time"),
        (f"{HEADER}\nreads: [1.0\nwrites: 2.0", 2, "not closed"),
        (f"{HEADER}\nreads: [1]\nreads: [2]", 3, "a second list"),
        (f"{HEADER}\nwrites: [1]\nreadinterval: 1 +/- 2", 3, "without its times"),
        (f"{HEADER}\nreads: [1]\nreadinterval: 1 or 2", 3, "no 'mean"),
        (f"{HEADER}\nreads: [1]\nreadinterval: 1 +/- x", 3, "'x' is not a figure"),
        ("type raw cache\nreads: [1]", 1, "has no level"),
        (f"{HEADER}\nreads: [1]\ntype raw cache\nwrites: [1]", 3, "has no level"),
        ("type raw cache none cache unsafe", 1, "stands twice"),
        ("type raw format qcow2", 1, "stands twice"),
        (f"type raw cache {'x' * 101}", 1, "odd"),
        ("type raw cache x\x1b[31m", 1, "odd"),
        (f"type raw cache {'x' * 1001}", 1, "too long"),
        (f"{HEADER}\nreads: [{'1,' * (MAX_TIMES + 1)}]", 2, "more than 100000 times"),
        ("x\n" * 100_001, 100_001, "more than 100000 lines"),
        ("type raw\n" * 10_001, 10_001, "more than 10000 configurations"),
    ],
)
def test_bad_text_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_kvm_perf(text.encode(), "bad.txt")
    assert caught.value.what == f"bad.txt:{line}: not imported"
    assert why in caught.value.why


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"hello\nworld", b"\xff" * 100, b"x" * ((4 << 20) + 1), SAMPLE[:30]]
)
def test_what_is_not_kvm_perf_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        import_kvm_perf(data, "other")


@given(
    st.lists(
        st.sampled_from([*SAMPLE.decode().split(), "\n", "[", "]", "=" * 5, "host", ":", "nan"])
        | st.text(max_size=5),
        max_size=60,
    )
)
def test_any_text_is_read_or_refused(words: list[str]) -> None:
    try:
        found = import_kvm_perf(" ".join(words).encode("utf-8", "replace"), "odd")
    except UsageError:
        return
    cells = {cell.id for cell in found.study.cells}
    assert {run.cell.id for run in found.runs} <= cells
    assert len({run.id for run in found.runs}) == len(found.runs)
    assert len(found.study.cells) == len(cells)


def test_the_example_of_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[1] / "docs" / "import.md").read_text()
    found = import_kvm_perf(page.partition("```\n")[2].partition("```")[0].encode(), "example")
    assert (len(found.runs), found.notes) == (6, ())
