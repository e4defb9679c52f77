"""Files and folders that are given to the user without rights, and those that are not ours."""

import os
import stat
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.process.owner import admit, hand_over
from diskproof.process.run_user import require_run_user


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_handed_over_is_one_users_alone(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_bytes(b"data")
    folder.mkdir(0o755)
    for path, wanted in ((file, 0o600), (folder, 0o700)):
        hand_over(path)
        hand_over(path)
        assert mode(path) == wanted
        owner = require_run_user() if os.geteuid() == 0 else os.geteuid()
        assert (path.stat().st_uid, path.stat().st_gid == require_run_user()) == (
            owner,
            os.geteuid() == 0,
        )


def test_no_link_is_followed_and_no_second_name_given(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"data")
    precious.chmod(0o644)
    before = precious.stat()
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "folder-link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        hand_over(tmp_path / "link")
    if os.geteuid() == 0:
        with pytest.raises(OSError, match="Not a directory|symbolic links"):
            admit(tmp_path / "folder-link")
    os.link(precious, tmp_path / "name")
    with pytest.raises(HostError, match="was replaced"):
        hand_over(tmp_path / "name")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(HostError, match="was replaced"):
        hand_over(tmp_path / "fifo")  # and it is not waited for
    after = precious.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_a_file_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    os.chown(file, 12345, 12345)
    with pytest.raises(HostError, match="was replaced"):
        hand_over(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user")
def test_who_is_admitted_may_enter_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(0o700)
    admit(folder)
    info = folder.stat()
    assert (info.st_uid, info.st_gid, mode(folder)) == (0, require_run_user(), 0o710)
