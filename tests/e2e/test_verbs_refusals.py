"""What every verb refuses, with one error of three lines: wrong files, stores that are not as they
should be, devices that nobody has consented to lose.

Requires what ``test_verbs.py`` requires.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from diskproof.process.start import run
from support.recording import needs_fuse
from support.running import mounted
from support.verb_places import STUDY, Call, Place
from support.verbs import (
    VERBS,
    WRITES,
    Verb,
    each,
    find_commands,
    find_verb_options,
    is_native,
    reads_study,
    verbs_for,
)

pytestmark = [needs_fuse, pytest.mark.long]


# -- wrong files ----------------------------------------------------------------------------


@each(*[verb for verb in VERBS if verb.wrong])
def test_a_wrong_file_is_told_in_three_lines(template: Place, place: Place, verb: Verb) -> None:
    (place.here / "folder").mkdir()
    (place.here / "rubbish").write_bytes(bytes(range(256)) * 16)
    (place.here / "wrong.toml").write_text(STUDY.replace("blocks", "bloks"))
    before = place.seen()
    for file in ("missing", "folder", "rubbish", "wrong.toml", "/dev/null/x"):
        for template_call in verb.wrong:
            if "--writer" in template_call and file == "folder":
                continue  # a folder is what is asked for
            call = place.call(verb.argv(template_call.replace("FILE", file)))
            assert call.code == 2, (file, call.err)
            assert 1 <= len(call.err.splitlines()) <= 3 and call.out == ""
            assert call.err.startswith("diskproof: ")
            call.assert_no_traceback()
    assert place.left(before) == ()


# -- stores that are not as they should be --------------------------------------------------

STORES = verbs_for("store", option="--store")


def damage(path: Path) -> None:
    """Everything behind the first page is not what it was."""
    with path.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(4096)
        stream.write(os.urandom(size - 4096))


def age(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE diskproof_schema SET version = 99")


@each(*STORES)
@pytest.mark.parametrize("harm", [damage, age])
def test_a_store_that_is_damaged_or_newer(place: Place, verb: Verb, harm: object) -> None:
    harm(place.store)  # type: ignore[operator]
    assert_refused(place, verb, {2})


@each(*STORES)
def test_a_store_that_cannot_be_written(place: Place, template: Place, verb: Verb) -> None:
    """Who only reads it does so all the same."""
    shelf = place.root / "shelf"
    shutil.rmtree(shelf, ignore_errors=True)
    with mounted(shelf, "-t", "tmpfs", "diskproof-test"):
        store = shelf / "diskproof.sqlite"
        shutil.copy(place.store, store)
        run(["mount", "-o", "remount,ro", str(shelf)], timeout=30)
        held = digest(store)
        call = place.call([*verb.argv(), "--store", str(store)], verb.makes)
        writes = verb.name.startswith("import") or verb.name in WRITES
        assert call.code == (3 if writes else verb.code), call.err
        assert not writes or "read-only" in call.err and len(error_lines(call)) <= 3
        call.assert_no_traceback()
        assert digest(store) == held and list(shelf.iterdir()) == [store]


def test_a_store_that_is_locked(template: Place, tmp_path: Path) -> None:
    """All wait for it at the same time, for they do so for half a minute."""
    place = template.copy(tmp_path / "place")
    with closing(sqlite3.connect(place.store, isolation_level=None)) as owner:
        owner.execute("PRAGMA locking_mode = EXCLUSIVE")
        owner.execute("BEGIN EXCLUSIVE")
        owner.execute("UPDATE diskproof_schema SET version = version")
        with ThreadPoolExecutor(len(STORES)) as pool:
            calls = list(pool.map(lambda verb: call_beside(place, verb, tmp_path), STORES))
        owner.execute("ROLLBACK")
    for verb, call in zip(STORES, calls, strict=True):
        assert call.code == 3 and "locked" in call.err, (verb.name, call.err)
        assert len(call.err.splitlines()) <= 3
        call.assert_no_traceback()


def call_beside(place: Place, verb: Verb, folder: Path) -> Call:
    """As on a host where nothing else measures."""
    lock = folder / f"{verb.name.replace(' ', '-')}.lock"
    return place.call(verb.argv(), DISKPROOF_LOCK=str(lock))


def assert_refused(place: Place, verb: Verb, codes: set[int]) -> None:
    held = digest(place.store)
    call = place.call(verb.argv())
    assert call.code in codes, call.err
    assert 1 <= len(call.err.splitlines()) <= 3 and call.out == ""
    assert call.err.startswith("diskproof: ")
    call.assert_no_traceback()
    assert call.left == () and digest(place.store) == held


def error_lines(call: Call) -> list[str]:
    """The error at the end of stderr, without what was told on the way."""
    before, _, error = call.err.rpartition("diskproof: ")
    return error.splitlines()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- consent --------------------------------------------------------------------------------

ON_DEVICE = STUDY.replace('path = "images"', 'kind = "device"\npath = "DEVICE"')
ON_FILES = STUDY.replace(
    'path = "images"',
    'kind = "filesystem"\non = "disk"\n[backings.disk]\nkind = "device"\npath = "DEVICE"',
).replace("[factors]", '[factors]\nbacking = "here"')


@contextmanager
def start_device(folder: Path) -> Iterator[Path]:
    """A disk whose content has no signature, as a database's raw disk has none."""
    image = folder / "disk.img"
    image.write_bytes(os.urandom(8 << 20))
    os.truncate(image, 320 << 20)
    argv = ["losetup", "--find", "--show", str(image)]
    device = Path(run(argv, timeout=30).text.strip())
    try:
        yield device
    finally:
        run(["losetup", "--detach", str(device)], timeout=30)


@each(*[verb for verb in VERBS if verb.name in find_commands() and reads_study(verb.name)])
@pytest.mark.parametrize("text", [ON_DEVICE, ON_FILES], ids=["device", "filesystem"])
def test_no_device_is_written_without_consent(place: Place, verb: Verb, text: str) -> None:
    with start_device(place.root) as device:
        held = digest(device)
        changed = text.replace("DEVICE", str(device)).replace('["host", "daemon"]', '"daemon"')
        if verb.name == "crash flushes":
            changed = changed.replace('"daemon"', '"guest"')
        (place.here / "study.toml").write_text(changed)
        call = place.call(verb.argv("study.toml"))
        run(["sync", str(device)], timeout=60)
        assert digest(device) == held
        call.assert_no_traceback()
        if verb.name in WRITES:
            assert call.code == 2 and str(device) in call.err
            assert "--destroy-data" in call.err and "--destroy-data" in find_verb_options(verb.name)
            assert len(call.err.splitlines()) == 3
        else:
            assert call.code == verb.code, call.err


@each(*[verb for verb in VERBS if {"-o", "--html", "--parquet"} & find_verb_options(verb.name)])
def test_no_device_is_replaced_by_a_file(place: Place, verb: Verb) -> None:
    node = place.here / "node.csv"
    os.mknod(node, 0o666 | 0o020000, os.makedev(1, 3))  # as /dev/null
    option = {"monitor": "--from recording.jsonl --html"}.get(verb.name, "-o")
    if is_native(verb) and verb.name != "monitor":
        option = f"{option} {node} {verb.call} "
        call = place.call(verb.argv(option))
    else:
        call = place.call(verb.argv(f"{option} {node}"))
        assert call.code in (2, 3) and len(call.err.splitlines()) <= 3
    assert node.is_char_device()
    call.assert_no_traceback()
