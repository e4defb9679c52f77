"""A program in a guest: the study that the command line asks, and the table that a study has."""

from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.cli.crash_in_guest import GuestCall, make_study, recipe_call
from diskproof.crash.gallery import read_gallery
from diskproof.crash.next import crash_jobs
from diskproof.errors import StudyError, UsageError
from diskproof.plan.crash import make_crash_plan
from diskproof.records import WorkloadSpec
from diskproof.study.crash import beside_writeback, crash_workload, extra_of, writer_of
from diskproof.study.guest_program import MAX_FOLDER
from diskproof.study.load import Study, parse_study
from diskproof.units import MIB
from support.planning import FACTS

TABLE = """
[factors]
frontend = ["guest", "daemon"]
[crash]
writers = ["program", "ledger"]
size = "64MiB"
[crash.program]
folder = "app"
writer = "./put 'a b'"
check = "./look"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "put").write_text("exit 0")
    return tmp_path


def call(folder: Path, settings: str = "default", **more: object) -> GuestCall:
    given = {"writer": "./put 'a b'", "check": "./look", "folder": folder / "app"}
    rest = {"on": None, "sector": None, "seed": None}
    return GuestCall(**given, settings=settings, **(rest | more))  # type: ignore[arg-type]


def caches(study: Study) -> set[tuple[str, str]]:
    cells, _ = make_crash_plan(study, FACTS)
    return {(cell.level("cache"), cell.level("format")) for cell in cells}


def test_the_table_makes_a_cell_of_guests_alone(folder: Path) -> None:
    study = parse_study(TABLE, folder=folder)
    cells, dropped = make_crash_plan(study, FACTS)
    of = {(cell.workload.name, cell.level("frontend")) for cell in cells}
    assert of == {("program", "guest"), ("ledger", "guest"), ("ledger", "daemon")}
    assert "the writer program needs frontend=guest, not daemon" in [
        each.reason for each in dropped
    ]
    (spec,) = {cell.workload for cell in cells if cell.workload.name == "program"}
    assert spec.option("folder") == str(folder / "app")
    assert (spec.option("writer"), spec.option("check")) == ("./put 'a b'", "./look")
    assert spec.option("filesystem") == "ext4" and not spec.option("records")


def test_other_writers_are_known_by_what_they_were(folder: Path) -> None:
    """Their verdicts are not made anew where a study has the table."""
    with_table = parse_study(TABLE, folder=folder).crash
    without = parse_study("[crash]\nsize = '64MiB'\n").crash
    for frontend in ("daemon", "guest"):
        specs = [crash_workload(rules, "ledger", frontend) for rules in (with_table, without)]
        assert specs[0] == specs[1]


def test_a_changed_program_is_another_cell(folder: Path) -> None:
    def spec() -> object:
        return crash_workload(parse_study(TABLE, folder=folder).crash, "program", "guest")

    before = spec()
    assert spec() == before
    (folder / "app" / "put").write_text("exit 1")
    changed = spec()
    (folder / "app" / "put").chmod(0o755)
    assert len({before, changed, spec()}) == 3


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('folder = "app"', 'folder = "nowhere"', "is no folder"),
        ('folder = "app"', "", "folder is missing"),
        ('check = "./look"', 'check = "./look \'"', "cannot be read"),
        ('check = "./look"', 'check = ""', "check"),
        ('check = "./look"', 'check = "./look"\nroot = "gentoo"', "gentoo"),
        ('check = "./look"', 'check = "./look"\npackages = ["git", "a b"]', "no name of a Debian"),
        ('check = "./look"', 'check = "./look"\npackages = ["git", "git"]', "stands there twice"),
        ('check = "./look"', 'check = "./look"\nprepare = "\'"', "cannot be read"),
        ('check = "./look"', 'check = "./look"\nname = "a b"', "name"),
        ('"program", "ledger"', '"ledger"', "go together"),
        ("[crash.program]", "[crash.programme]", "programme"),
    ],
)
def test_mistakes_are_told(folder: Path, before: str, after: str, told: str) -> None:
    assert before in TABLE
    with pytest.raises(StudyError, match=told):
        parse_study(TABLE.replace(before, after), folder=folder)


def test_a_folder_that_is_too_large_is_told(folder: Path) -> None:
    with (folder / "app" / "large").open("wb") as file:
        file.truncate(MAX_FOLDER + 1)
    with pytest.raises(StudyError, match="too much to bring into a guest"):
        parse_study(TABLE, folder=folder)
    with pytest.raises(UsageError, match="too much to bring into a guest"):
        make_study(call(folder), 600)


def test_the_call_is_the_study_that_asks_the_same(folder: Path) -> None:
    study = make_study(call(folder, "cache=none,cache=unsafe,format=qcow2", on="xfs,noatime"), 600)
    assert caches(study) == {("none", "qcow2"), ("unsafe", "qcow2")}
    rules = study.crash
    assert (rules.filesystem, rules.mount, rules.sector) == ("xfs", "noatime", 4096)
    assert rules.size == 600 * MIB + 4 * MIB
    # Two cells: of each 300 s a start, the writer's minute, three searches.
    assert (rules.seconds, rules.explore_seconds) == (60, 70)
    assert rules.program and rules.program.folder == str(folder / "app")
    assert all(backing.make for backing in study.backings)


def test_defaults_are_those_of_studies(folder: Path) -> None:
    assert caches(make_study(call(folder), 60)) == {("writeback", "qcow2")}
    study = make_study(call(folder, "root=storage", seed=7, sector=512), 60)
    (cells, _) = make_crash_plan(study, FACTS)
    assert {extra_of(cell.workload) for cell in cells} == {"storage"}
    assert (study.crash.seed, study.crash.sector) == (7, 512)


@pytest.mark.parametrize(("on", "times"), [("ext4", 2), ("f2fs", 2), ("zfs", 1)])
def test_a_program_runs_beside_writeback_where_commits_can_be_asked_for(
    folder: Path, on: str, times: int
) -> None:
    study = make_study(call(folder, "cache=none,cache=unsafe", on=on), 60)
    cells, _ = make_crash_plan(study, FACTS)
    beside = [cell for cell in cells if cell.level("beside")]
    alone = [cell for cell in cells if not cell.level("beside")]
    assert (len(alone), len(cells)) == (2, 2 * times)
    assert beside == [beside_writeback(cell) for cell in alone][: len(beside)]
    jobs = crash_jobs(cells, study.crash.faults)
    asked = [job.faults for job in jobs if job.cell.level("beside")]
    assert asked == [("power",)] * len(beside)
    killed = replace(study, crash=replace(study.crash, faults=("qemu-kill",)))
    assert len(make_crash_plan(killed, FACTS)[0]) == 2


def test_packages_are_part_of_the_cell_and_come_with_those_of_a_file_system(folder: Path) -> None:
    def spec(settings: str = "default", **more: object) -> WorkloadSpec:
        (cell, *_) = make_crash_plan(make_study(call(folder, settings, **more), 60), FACTS)[0]
        return cell.workload

    git = spec(packages=("git", "sqlite3"))
    assert git == spec(packages=("sqlite3", "git", "git")) != spec()
    assert extra_of(git) == ":git,sqlite3" and "prepare" not in dict(git.options)
    assert extra_of(spec("root=storage", packages=("git",))) == "storage:git"
    assert extra_of(spec(on="f2fs", packages=("git",))) == "storage:git"
    with pytest.raises(StudyError, match="is no name of a Debian package"):
        spec(packages=("-o=x",))


def test_a_recipe_is_a_program_with_its_packages(folder: Path) -> None:
    recipe = recipe_call("git-synced", call(folder, packages=("hg",)))
    study = make_study(recipe, 60)
    cell, beside = make_crash_plan(study, FACTS)[0]
    assert beside == beside_writeback(cell)
    spec = cell.workload
    assert (spec.name, writer_of(spec), extra_of(spec)) == ("git-synced", "program", ":git,hg")
    words = [spec.option(name) for name in ("prepare", "writer", "check")]
    assert words == ["sh ./prepare all", "sh ./writer sync", "sh ./check"]
    assert study.name == "crash-git-synced"


@pytest.mark.parametrize("name", read_gallery())
def test_every_recipe_runs_in_the_guest_or_says_why_not(name: str, folder: Path) -> None:
    if read_gallery()[name].not_in_guest:
        with pytest.raises(UsageError, match="cannot be tried in our guest"):
            recipe_call(name, call(folder))
        return
    made = recipe_call(name, call(folder))
    for command in (made.writer, made.check):
        assert any((made.folder / word).is_file() for word in command.split()), command
        assert str(made.folder) not in command


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("", "'' is no setting"),
        ("cache", "'cache' is no setting"),
        ("frontend=host", "'frontend=host' is no setting"),
        ("cache=none,,", "'' is no setting"),
        ("root=gentoo", "root names no guest"),
        ("cache=nice", "nice"),
        ("pace=slow", "pace"),
        ('cache="none"', "none"),
    ],
)
def test_settings_that_are_none_are_told(folder: Path, settings: str, told: str) -> None:
    with pytest.raises((UsageError, StudyError), match=told):
        make_study(call(folder, settings), 600)
    with pytest.raises(UsageError, match="is no folder"):
        make_study(call(folder / "nowhere"), 600)
