"""A user's fio job file: what is taken, what is refused and with which line. Pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.study.job_file import OPTIONS, find_job_mistakes, parse_job_file

FILE = """
; of a database
[global]
ioengine = libaio
bs=8k            # a page

[reader]
rw=randread
time_based
[log writer]
bs=512
rw=write
"""


def mistakes(*lines: str) -> list[tuple[int, str]]:
    return list(find_job_mistakes("\n".join(["[job]", *lines])))


def test_globals_hold_for_the_jobs_after_them_and_give_way_to_their_own() -> None:
    reader, writer = parse_job_file(FILE)
    assert (reader.name, reader.line) == ("reader", 7)
    assert reader.options == {
        "ioengine": "libaio",
        "bs": "8k",
        "rw": "randread",
        "time_based": "1",
    }
    assert writer.options == {"ioengine": "libaio", "bs": "512", "rw": "write"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("numjobs=1000000", "not a whole number from 1 to 256"),
        ("iodepth=10000000", "not a whole number from 1 to 4096"),
        ("iodepth=0", "not a whole number"),
        ("filename=/dev/sda", "the disk under test is filled in"),
        ("directory=/", "the disk under test is filled in"),
        ("exec_prerun=reboot", "may not run commands"),
        ("exec_postrun=reboot", "may not run commands"),
        ("stonewall", "run at the same time"),
        ("write_bw_log=/etc/x", "not an option of a load"),
        ("read_iolog=/etc/passwd", "not an option of a load"),
        ("include other.fio", "not an option of a load"),
        ("mem=mmaphuge:/etc/x", "not an option of a load"),
        ("verify_state_save=1", "not an option of a load"),
        ("iodeph=4", "did you mean 'iodepth'?"),
        ("ioengine=external:/tmp/x.so", "is not one of"),
        ("ioengine=nbd", "is not one of"),
        ("size=$(reboot)", "not expanded"),
        ("size=`reboot`", "not expanded"),
        ("offset=${HOME}", "not expanded"),
        ("buffer_pattern='/etc/shadow'", "may not be read from a file"),
        ("bs=4\x00k", "not expanded"),
    ],
)
def test_what_leaves_the_disk_under_test_is_refused(line: str, reason: str) -> None:
    ((number, message),) = mistakes("rw=read", line)
    assert number == 3
    assert reason in message


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "it has 0 jobs"),
        ("[global]\nbs=4k", 1, "it has 0 jobs"),
        ("\n".join(f"[j{n}]" for n in range(65)), 1, "it has 65 jobs"),
        ("rw=read\n[job]", 1, "before the first"),
        ("[a]\n[a]", 2, "two jobs"),
        ("[../a]", 1, "no name of a job"),
        ("[" + "a" * 41 + "]", 1, "no name of a job"),
    ],
)
def test_a_file_that_is_no_set_of_jobs(text: str, line: int, reason: str) -> None:
    assert (line, True) in [(n, reason in message) for n, message in find_job_mistakes(text)]
    with pytest.raises(ValueError, match="line"):
        parse_job_file(text)


@given(st.text(max_size=300) | st.lists(st.text("[]ab=;#\n $'", max_size=20)).map("\n".join))
def test_any_text_is_either_refused_or_read_and_nothing_odd_gets_through(text: str) -> None:
    try:
        sections = parse_job_file(text)
    except ValueError:
        return
    assert 1 <= len(sections) <= 64
    for section in sections:
        assert section.options.keys() <= OPTIONS
        assert all(value.isprintable() and "$" not in value for value in section.options.values())
