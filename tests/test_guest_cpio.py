"""The archive writer, read back by cpio's own rules. The kernel reads it in tests/vm."""

import stat

from hypothesis import given
from hypothesis import strategies as st

from diskproof.guest.ours import cpio


def read_archive(archive: bytes) -> list[cpio.Entry]:
    """A reader of the format, written from its description and not from the writer."""
    entries, at = [], 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        at += 110
        name = archive[at : at + fields[11] - 1].decode()
        assert archive[at + fields[11] - 1] == 0
        at = (at + fields[11] + 3) & ~3
        content = archive[at : at + fields[6]]
        at = (at + fields[6] + 3) & ~3
        if name == "TRAILER!!!":
            assert at == len(archive)
            return entries
        entries.append(cpio.Entry(name, fields[1], content, (fields[9], fields[10])))


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
ENTRIES = st.builds(
    cpio.Entry,
    NAMES.filter(lambda name: name != "TRAILER!!!"),
    st.integers(0, 0o177777),
    st.binary(max_size=200),
    st.tuples(st.integers(0, 4095), st.integers(0, 1 << 20)),
)


@given(st.lists(ENTRIES, max_size=6))
def test_what_is_written_is_read(entries: list[cpio.Entry]) -> None:
    assert read_archive(cpio.render_cpio(entries)) == entries


def test_kinds_of_entries() -> None:
    assert stat.S_ISDIR(cpio.directory_entry("dev").mode)
    assert stat.S_ISCHR(cpio.device_entry("dev/null", 1, 3).mode)
    assert cpio.file_entry("init", b"x", 0o755).mode == stat.S_IFREG | 0o755


def test_equal_inputs_give_equal_archives() -> None:
    entries = [cpio.file_entry("init", b"x", 0o755)]
    assert cpio.render_cpio(entries) == cpio.render_cpio(entries)
