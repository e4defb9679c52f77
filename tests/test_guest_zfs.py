"""The guest with ZFS before it is built: sources of packages, versions, what names its folder."""

import gzip
from pathlib import Path

import pytest

from diskproof.errors import HostError, UsageError
from diskproof.guest.ours import build, kernel, packages, zfs_modules
from diskproof.study.crash import guest_extra
from diskproof.study.load import parse_study

RELEASE = "6.1.0-56-amd64"
BANNER = (
    b"Linux version 6.1.0-56-amd64 (kernel@example.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld"
    b" 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)\n\0"
)


def test_entries_of_both_formats_get_a_component_once(tmp_path: Path) -> None:
    entries = [
        "# deb http://deb.example stable main",
        "deb http://deb.example stable main non-free-firmware",
        "deb [signed-by=/k arch=amd64] http://deb.example stable-security main contrib # yes",
        "deb http://flat.example ./",
        "deb-src http://deb.example stable main",
    ]
    stanza = "Types: deb\nURIs: http://deb.example\nSuites: stable\n{}\nSigned-By: /k\n"
    (tmp_path / "a.list").write_text("\n".join(entries))
    (tmp_path / "b.sources").write_text(
        stanza.format("Components: main") + "\n" + stanza.format("Components: contrib main")
    )
    sources = [str(tmp_path / name) for name in ("a.list", "b.sources")]
    lines, stanzas = packages.with_component(sources, "contrib", tmp_path / "copies")
    assert Path(lines).read_text().splitlines() == [
        entries[0],
        f"{entries[1]} contrib",
        *entries[2:],
    ]
    assert Path(stanzas).read_text() == (
        stanza.format("Components: main contrib") + "\n" + stanza.format("Components: contrib main")
    )


def make_tree(folder: Path, head: str) -> Path:
    log = folder / "usr/share/doc/zfsutils-linux/changelog.Debian.gz"
    log.parent.mkdir(parents=True)
    log.write_bytes(gzip.compress(f"{head}\n\n  * First.\n".encode()))
    return folder


def test_headers_and_sources_are_those_of_the_kernel_and_the_tools(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, "zfs-linux (2.1.11-1+deb12u1) bookworm; urgency=medium")
    assert zfs_modules.find_pins(RELEASE, b"\x7fELF\0" + BANNER, tree) == (
        "linux-headers-6.1.0-56-amd64=6.1.192-2",
        "zfs-dkms=2.1.11-1+deb12u1",
    )


@pytest.mark.parametrize(
    ("image", "head"),
    [(b"\x7fELF", "zfs-linux (2.1.11-1) x"), (BANNER, "other (1) x"), (BANNER, "")],
)
def test_without_versions_nothing_is_guessed(tmp_path: Path, image: bytes, head: str) -> None:
    tree = make_tree(tmp_path, head) if head else tmp_path
    with pytest.raises(HostError, match="OpenZFS cannot be built") as caught:
        zfs_modules.find_pins(RELEASE, image, tree)
    assert caught.value.why


def test_how_it_is_built_names_its_folder_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = ("", *packages.EXTRA_PACKAGES)
    before = {extra: build.base_id("bookworm", extra) for extra in extras}
    assert len({*before.values()}) == len(extras)
    monkeypatch.setattr(zfs_modules, "INPUTS", ("another",))
    changed = [extra for extra in extras if build.base_id("bookworm", extra) != before[extra]]
    assert changed == [zfs_modules.EXTRA]


def test_a_module_names_the_guest_that_has_it() -> None:
    assert kernel.find_extra("zfs") == "zfs"
    assert kernel.find_extra("dm_thin_pool") == "storage"
    assert kernel.find_extra("ext4") == ""


def test_writers_on_zfs_are_in_its_guest_and_postgresql_is_not() -> None:
    assert guest_extra("ledger-fs", "zfs") == guest_extra("sqlite", "zfs") == "zfs"
    assert guest_extra("postgres", "ext4") == "postgres" and guest_extra("ledger-fs", "ext4") == ""
    text = '[crash]\nwriters = ["postgres"]\nfilesystem = "zfs"\nsize = "1GiB"\n'
    with pytest.raises(UsageError, match="the guest with zfs has no PostgreSQL"):
        parse_study(text)
    with pytest.raises(UsageError, match="the guest with f2fs has no PostgreSQL"):
        parse_study(text.replace("zfs", "f2fs"))
