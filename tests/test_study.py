"""Study files: what is read, and how mistakes are told."""

import os
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import StudyError
from diskproof.study import keys
from diskproof.study.factors import FACTOR_BY_NAME, OTHER_WORDS
from diskproof.study.load import load_study, parse_study, read_study
from diskproof.study.protocol import LikelyRules, RaceRules, find_rules
from diskproof.study.toml_lines import read_text

GOOD = """
name = "mine"
workloads = ["seq-read", "sync-write-4k"]

[factors]
frontend = ["daemon", "guest"]
lazy-refcounts = [true, false]
cluster_size = ["64KiB", 65536, "1M"]

[[exclude]]
frontend = "guest"
lazy_refcounts = "on"

[protocol]
blocks = 4
runtime = "1.5s"
"""


def errors(text: str) -> list[str]:
    with pytest.raises(StudyError) as caught:
        parse_study(text, "s.toml")
    return caught.value.what.splitlines()


def test_a_good_study() -> None:
    study = parse_study(GOOD)
    assert dict(study.factors) == {
        "backing": ("directory",),
        "frontend": ("daemon", "guest"),
        "lazy_refcounts": ("on", "off"),
        "cluster_size": ("64K", "1M"),
    }
    read = study.workloads[0]
    assert (read.name, read.kind, read.option("rw"), read.option("runtime")) == (
        "seq-read", "fio", "read", "1.5",
    )  # fmt: skip
    assert study.seed > 0


@pytest.mark.parametrize(
    ("line", "number", "message"),
    [
        ('cahce = "none"', 6, "unknown factor 'cahce'; did you mean 'cache'?"),
        ('cache = ["none", "writebak"]', 6, "did you mean 'writeback'?"),
        ('bus = [\n  "ide",\n  "virtoi-blk",\n]', 8, "did you mean 'virtio-blk'?"),
        ('cluster_size = "63"', 6, "cluster_size"),
        ("vcpus = 0", 6, "must be 1 to 64"),
        ("cache = []", 6, "at least 1, at most 1000"),
        ("[protocol]\nblokcs = 3", 7, "did you mean 'blocks'?"),
        ("[protocol]\nblocks = 0", 7, "not a whole number from 1 to 10000"),
        ('[protocol]\nruntime = "soon"', 7, "is not a time"),
        ('[[only]]\nformat = "raw"\n[[only]]\nbus = "scsi"', 9, "'virtio-scsi' here"),
        ('[[exclude]]\ncache = "unsafe"', 7, "among the study's"),
        ('[[exclude]]\nworkload = "seq-raed"', 7, "did you mean 'seq-read'?"),
        ('[backings.x]\nkind = "direktory"\npath = "/x"', 7, "did you mean 'directory'?"),
        ("[backings.x]", 6, "backings.x: path is missing"),
        ("cache = none", 6, "not valid TOML"),
    ],
)
def test_a_mistake_names_its_line(line: str, number: int, message: str) -> None:
    text = f'name = "s"\nworkloads = ["seq-read"]\n\n[factors]\nformat = "raw"\n{line}\n'
    (error,) = errors(text)
    assert error.startswith(f"s.toml:{number}: ")
    assert message in error


def test_all_mistakes_are_told_at_once() -> None:
    found = errors('wrokloads = []\n[factors]\ncache = "nine"\nbus = "pci"\n')
    assert [line.split(":")[1] for line in found] == ["1", "3", "4"]


def test_workload_tables() -> None:
    study = parse_study(
        '[workloads.small]\npreset = "rand-read-4k-d1"\nbs = "8k"\nsize = "64MiB"\nfill = false\n'
    )
    (spec,) = study.workloads
    assert (spec.name, spec.option("bs"), spec.option("size"), spec.option("fill")) == (
        "small", "8k", str(64 << 20), "off",
    )  # fmt: skip
    assert "unknown workload" in errors('[workloads.x]\npreset = "nope"\n')[0]
    assert "did you mean 'iodepth'" in errors("[workloads.seq-read]\niodepht = 3\n")[0]
    assert (
        "is not a size; write it like 4096, 64K"
        in errors('[workloads.seq-read]\nbs = "4k;rm"\n')[0]
    )


@pytest.mark.parametrize(("factor", "word"), OTHER_WORDS)
def test_words_of_managers_are_answered_with_ours(factor: str, word: str) -> None:
    (told,) = errors(f'[factors]\nfrontend = "guest"\n{factor} = "{word}"\n')
    assert OTHER_WORDS[factor, word] in told and "known:" not in told
    known = FACTOR_BY_NAME[factor].levels
    assert word not in known and any(level in told for level in known)


def test_a_size_in_thousands_is_asked_about() -> None:
    for table in ('[protocol]\nsize = "16MB"', '[factors]\ncluster_size = "64kB"'):
        assert "counts in thousands" in errors(table)[0]
    (spec,) = parse_study('[workloads.x]\npreset = "rand-read-4k-d1"\nbs = "4KiB"\n').workloads
    assert spec.option("bs") == "4k"
    assert "counts in thousands" in errors('[workloads.seq-read]\nbs = "4KB"\n')[0]


def test_what_stands_there_twice_is_told() -> None:
    (told,) = errors('[factors]\ncache = ["none", "none"]\n')
    assert told.endswith("factors.cache: 'none' stands there twice")


@given(st.text(max_size=70))
def test_names_in_any_script(text: str) -> None:
    """A name that is taken is safe in a file's name, a command line and a table."""
    try:
        name = keys.study_name(text)
    except ValueError:
        name = keys.study_name_of(text)
    assert name == unicodedata.normalize("NFC", name) and name.isprintable()
    assert 0 < len(name) <= 64 and not set(name) & set(" /\\'\"<>&|;$`")
    if name[0] not in "._-":
        assert keys.study_name(name) == name


def test_a_fio_job_file_is_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "app.fio").write_text("[app]\nrw=randread\n")
    (tmp_path / "s.toml").write_text('[workloads.app]\njob = "app.fio"\n')
    before = load_study(tmp_path / "s.toml")
    assert before.workloads[0].kind == "fio-job"
    assert before.workloads[0].option("job") == "[app]\nrw=randread\n"
    (tmp_path / "app.fio").write_text("[app]\nrw=randwrite\n")
    assert load_study(tmp_path / "s.toml").id != before.id


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (2 << 20)])
def test_foreign_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.toml").write_bytes(content)
    with pytest.raises(StudyError):
        load_study(tmp_path / "s.toml")


def test_a_pipe_is_read_or_given_up_and_a_device_is_no_study(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="it did not end within 0.1 s"):
        read_text(pipe, 100, seconds=0.1)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(pipe.write_text, "name = 'x'")
        assert read_text(pipe, 100, seconds=5) == "name = 'x'"
        writing.result(5)
    with pytest.raises(StudyError, match="null"):
        load_study(Path("/dev/null"))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(StudyError, match="cannot read the study"):
            load_study(path)


def test_the_id_is_about_what_shapes_runs() -> None:
    study = parse_study(GOOD)
    assert parse_study(GOOD.replace("blocks = 4", "blocks = 9")).id == study.id
    assert parse_study(GOOD.replace("1.5s", "2s")).id != study.id
    assert parse_study(GOOD.replace('"guest"\nlazy', '"daemon"\nlazy')).id != study.id


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
KEYS = st.sampled_from(
    ["factors", "protocol", "workloads", "backings", "only", "exclude", "name", "cache", "size",
     "path", "kind", "preset", "job", "runtime", "blocks", "workload", "cluster_size"]
) | st.text(max_size=8)  # fmt: skip
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


@given(st.dictionaries(KEYS, TREES, max_size=6))
def test_no_content_gives_more_than_a_study_error(content: dict[str, object]) -> None:
    try:
        read_study(content, "", "s.toml", Path("/nonexistent"))
    except StudyError as error:
        assert error.what


@given(st.text(alphabet="abc[]={}\"'\n.,#-_ 0123456789", max_size=200))
def test_no_text_gives_more_than_a_study_error(text: str) -> None:
    try:
        parse_study(text)
    except StudyError as error:
        assert error.what


RACE = GOOD.replace(
    "blocks = 4", 'stop = "decided"\ndelta = "3%"\nmin_blocks = 40\nmax_blocks = 50'
)


def test_a_race_and_what_is_not_said() -> None:
    study = parse_study(RACE)
    assert study.race == RaceRules(0.03, 0.95, 1, 40, 50)
    assert study.blocks == 50
    assert parse_study(GOOD).race is None


def test_when_to_stop_is_no_part_of_a_study() -> None:
    """What was measured counts when a study becomes a race, or a race goes on for longer."""
    wider = RACE.replace('delta = "3%"', "delta = 0.1\nconfidence = 0.8\ntop = 3")
    assert parse_study(GOOD).id == parse_study(RACE).id == parse_study(wider).id


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stop = 'soon'", "protocol.stop"),
        ("delta = 0.02", 'delta: this goes with stop = "decided"'),
        ("stop = 'decided'\nblocks = 4", "blocks: a race has min_blocks and max_blocks instead"),
        ("stop = 'decided'\ndelta = '60%'", "delta must be above 0 and at most 50%"),
        ("stop = 'decided'\ndelta = 0", "delta must be above 0"),
        ("stop = 'decided'\ndelta = 'wide'", "'wide' is not a share"),
        ("stop = 'decided'\nconfidence = 1.0", "confidence must be 50% to 99.99%"),
        ("stop = 'decided'\nconfidence = true", "True is not a share"),
        ("stop = 'decided'\ntop = 0", "top: 0 is not a whole number from 1 to 1000"),
        ("stop = 'decided'\ntop = true", "protocol.top"),
        ("stop = 'decided'\nmin_blocks = 1", "min_blocks: 1 is not a whole number from 2"),
        ("stop = 'decided'\nmin_blocks = 41", "min_blocks <= max_blocks must hold"),
        (
            "stop = 'decided'\nmax_blocks = 1001",
            "max_blocks: 1001 is not a whole number from 2 to 1000",
        ),
    ],
)
def test_wrong_rules_of_a_race_are_named_with_their_line(line: str, message: str) -> None:
    text = f"[protocol]\nseed = 5\n{line}\n"
    (found,) = errors(text)
    number = 2 + len(line.splitlines())
    assert found.startswith(f"s.toml:{number}: ") and message in found


@given(st.text() | st.from_regex(r"[a-z_]+ = [-0-9.a-z\"%]+", fullmatch=True))
def test_rules_in_any_text_are_found_or_not(line: str) -> None:
    found = find_rules(f'[protocol]\nstop = "decided"\n{line}\n')
    assert found is None or found.min_blocks >= 2


def test_a_race_for_the_likely_best_has_rules_of_its_own() -> None:
    likely = RACE.replace('"decided"', '"likely"').replace("min_blocks = 40\n", "")
    study = parse_study(likely)
    assert study.race == LikelyRules(0.03, 0.95, 1, 1, 50) == find_rules(likely)
    assert (
        study.race.likely and study.race.most_runs(24) == 240 and study.id == parse_study(RACE).id
    )
    assert RaceRules(max_blocks=50).most_runs(24) == 1200 and not RaceRules().likely
    assert errors("[protocol]\nstop = 'likely'\nmin_blocks = 0\n")[0].startswith("s.toml:3: ")


def test_a_stored_study_has_the_rules_of_its_file() -> None:
    assert find_rules(RACE) == parse_study(RACE).race
    assert find_rules(GOOD) is find_rules("type qcow2 cache unsafe") is find_rules("[") is None


def test_workloads_as_list_and_tables_is_told_what_to_do() -> None:
    text = 'workloads = ["seq-read"]\n[workloads.app]\njob = "app.fio"\n'
    with pytest.raises(StudyError, match="study.toml:2") as caught:
        parse_study(text)
    assert "[workloads.seq-read]" in caught.value.hint


def test_a_file_system_needs_its_room() -> None:
    table = '[crash]\nwriters = "ledger-fs"\nfilesystem = "xfs"\nsize = '
    with pytest.raises(StudyError, match="study.toml:3.*xfs needs a disk of 300 MiB"):
        parse_study(f'{table}"64MiB"\n')
    assert parse_study(f'{table}"300MiB"\nmount = "discard"\n').crash.mount == "discard"
