"""Classes of trees: what became of each operation, whatever sector tells it."""

from support.litmus.classes import class_of, classes
from support.litmus.operations import Litmus
from support.litmus.steps import fsync, make, step, write

APPEND = Litmus(
    "append",
    (write("foo", 9216, 12288, "A"), fsync("foo"), write("foo", 0, 4096, "B")),
    (make("foo"), write("foo", 0, 9216, "o")),
)


def of(text: str, program: Litmus = APPEND) -> str:
    return class_of(f"foo file links=1 size={text}", program).removeprefix("foo file links=1 size=")


def test_sectors_that_are_there_by_themselves_make_no_classes() -> None:
    torn = (
        "21504 o*9216,0*4096,A*8192",
        "21504 o*9216,A*3072,0*4096,A*5120",
        "21504 o*9216,A*12287,0*1",
    )
    assert {of(text) for text in torn} == {"21504 write-o:all write-A:part"}
    assert of("21504 o*9216,A*12288") == "21504 write-o:all write-A:all"
    assert of("21504 o*9216,0*12288") == "21504 write-o:all"
    assert of("21504 0*21504") == "21504 -"
    assert of("0 -") == "0 -"


def test_a_length_that_no_operation_makes_is_between() -> None:
    assert of("12288 o*9216,A*3072") == of("16384 o*9216,A*7168")
    assert of("12288 o*9216,A*3072") == "between write-o:all write-A:all"


def test_what_a_later_operation_put_there_counts_as_there() -> None:
    assert of("9216 B*4096,o*5120") == "9216 write-o:all write-B:all"
    assert of("9216 0*4096,o*5120") == "9216 write-o:part"
    punched = step("fallocate", "foo", mode="punch,keep", offset=1000, bytes=7000)
    program = Litmus("punch", (punched,), APPEND.setup)
    assert of("9216 o*1000,0*7000,o*1216", program) == "9216 write-o:all fallocate-0:all"
    assert of("9216 o*4096,0*3904,o*1216", program) == "9216 write-o:all fallocate-0:part"


def test_names_links_attributes_and_what_cannot_be_read_stay() -> None:
    for line in (
        "A directory user.litmus=A*40",
        "bar symlink links=1 to=A/foo",
        "foo file links=1 size=9216 unreadable: Input/output error",
        "unusable: Structure needs cleaning",
    ):
        assert class_of(line, APPEND) == line
    line = "foo file links=2 same=bar size=9216 o*9216 user.litmus=A*40"
    told = "foo file links=2 same=bar size=9216 write-o:all user.litmus=A*40"
    assert class_of(line, APPEND) == told


def test_what_was_there_may_still_be_there_until_something_is_flushed() -> None:
    def when(*found: int) -> set[int]:
        trees = {returned: frozenset({"A directory"}) for returned in found}
        return {returned for returned, _ in classes(trees, APPEND)}

    assert when(0) == {0, 1}
    assert when(1) == {1}
    assert when(2) == {2, 3}
