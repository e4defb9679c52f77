"""[backings.NAME] tables: lists, nesting, mistakes."""

import pytest

from diskproof.errors import StudyError
from diskproof.study.load import Study, parse_study

DIRECTORY = '[backings.ssd]\npath = "/srv"\n'


def study(text: str) -> Study:
    return parse_study(text)


def test_a_list_makes_one_backing_a_value() -> None:
    made = study('[backings.fs]\nkind = "filesystem"\nfs = ["ext4", "xfs"]\nsize = "1GiB"\n')
    assert [backing.name for backing in made.backings] == ["fs-ext4", "fs-xfs"]
    assert [backing.option("fs") for backing in made.backings] == ["ext4", "xfs"]
    assert {backing.option("size") for backing in made.backings} == {str(1 << 30)}
    assert dict(made.factors)["backing"] == ("fs-ext4", "fs-xfs")
    assert all(backing.on and backing.on.kind == "directory" for backing in made.backings)


def test_lists_combine_and_empty_values_have_a_name() -> None:
    text = '[backings.fs]\nkind = "filesystem"\nfs = ["ext4", "xfs"]\nmount = ["", "nobarrier,a=1"]'
    assert [backing.name for backing in study(text).backings] == [
        "fs-ext4-default",
        "fs-ext4-nobarrier-a-1",
        "fs-xfs-default",
        "fs-xfs-nobarrier-a-1",
    ]


def test_a_table_below_another_is_no_level_unless_it_is_asked_for() -> None:
    text = DIRECTORY + '[backings.fs]\nkind = "filesystem"\non = "ssd"\n'
    made = study(text)
    assert [backing.name for backing in made.backings] == ["fs"]
    assert made.backings[0].on and made.backings[0].on.option("path") == "/srv"
    both = study('factors = { backing = ["fs", "ssd"] }\n' + text)
    assert dict(both.factors)["backing"] == ("fs", "ssd")
    assert {backing.name for backing in both.backings} == {"fs", "ssd"}


def test_a_table_with_lists_stands_for_all_that_it_makes() -> None:
    text = 'factors = { backing = "fs" }\n[backings.fs]\nkind = "filesystem"\nfs = ["ext4", "xfs"]'
    assert dict(study(text).factors)["backing"] == ("fs-ext4", "fs-xfs")


def test_bases_with_lists_multiply() -> None:
    text = (
        '[backings.low]\nkind = "filesystem"\nfs = ["ext4", "xfs"]\n'
        '[backings.high]\nkind = "filesystem"\nfs = "ext4"\non = "low"\n'
    )
    names = [backing.name for backing in study(text).backings]
    assert names == ["high-on-low-ext4", "high-on-low-xfs"]


def test_what_a_backing_stands_on_is_part_of_the_study() -> None:
    top = '[backings.fs]\nkind = "filesystem"\non = "ssd"\n'
    one = study(DIRECTORY + top)
    other = study(DIRECTORY.replace("/srv", "/var") + top)
    assert one.id != other.id


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[backings.a]\nkind = "floppy"', "floppy"),
        ('[backings.a]\nkind = "directory"', "path is missing"),
        ('[backings.a]\npath = "/x"\nfs = "xfs"', "fs"),
        ('[backings.a]\nkind = "filesystem"\nsize = "much"', "much"),
        ('[backings.a]\nkind = "filesystem"\nmkfs = "$(reboot)"', "options of mkfs"),
        ('[backings.a]\nkind = "filesystem"\non = "b"', "'b'"),
        ('[backings.a]\nkind = "filesystem"\non = "a"', "stands on itself"),
        (
            '[backings.a]\nkind = "filesystem"\non = "b"\n'
            '[backings.b]\nkind = "filesystem"\non = "a"',
            "stands on itself",
        ),
        ('[backings.a]\npath = "/x"\non = "b"', "not made on another"),
        ('[backings.a]\nkind = "device"\npath = "/etc/passwd"', "a block device"),
        ('[backings.a]\nkind = "filesystem"\nfs = []', "at least 1"),
        ('[backings.a-x]\npath = "/a"\n[backings.a]\nkind = "tmpfs"\nsize = ["x"]', "'x'"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        study(text)
    assert said in str(caught.value)
    assert "study.toml:" in str(caught.value)


def test_two_backings_of_one_name_are_a_mistake() -> None:
    text = (
        '[backings.a]\nkind = "tmpfs"\nsize = ["1G", "2G"]\n'
        f'[backings.a-{1 << 30}]\nkind = "tmpfs"\nsize = "3G"\n'
    )
    with pytest.raises(StudyError, match="two backings"):
        study(text)
