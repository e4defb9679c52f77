"""What maintainer scripts of servers would have done, on a few files of theirs."""

from pathlib import Path

import pytest

from diskproof.guest.ours.root import prepare_root
from diskproof.guest.ours.server_root import LINKS, USERS


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("initdb", "pg_ctl", "pg_isready", "pgbench", "psql"):
        put(tmp_path / "usr/lib/postgresql/17/bin" / name, name)
    put(tmp_path / "usr/share/postgresql-common/pg_wrapper", "a wrapper in Perl")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/psql").symlink_to("../share/postgresql-common/pg_wrapper")
    for name in ("usr/bin/mawk", "usr/bin/php8.4", "usr/sbin/php-fpm8.4", "usr/bin/perl5"):
        put(tmp_path / name)
    (tmp_path / "etc/php/8.4/fpm/conf.d").mkdir(parents=True)
    put(tmp_path / "usr/share/php8.4-common/common/pdo.ini", "; comment\n; priority=10\n")
    put(tmp_path / "usr/share/php8.4-mysql/mysql/mysqli.ini", "extension=mysqli.so\n")
    put(tmp_path / "var/lib/dpkg/status")
    return tmp_path


def test_a_root_of_servers(root: Path) -> None:
    prepare_root(root, "servers")
    for name in LINKS:  # absolute links, as seen from inside
        assert (root / (root / name).readlink().relative_to("/")).is_file()
    assert (root / "usr/bin/psql").readlink() == Path("/usr/lib/postgresql/17/bin/psql")
    modules = {path.name for path in (root / "etc/php/8.4/fpm/conf.d").iterdir()}
    assert modules == {"10-pdo.ini", "20-mysqli.ini"}
    assert list((root / "var").iterdir()) == []
    assert not (root / "usr/bin/perl5").exists()
    users = (root / "etc/passwd").read_text()
    assert users.count("\n") == 2 + len(USERS) and "root:x:0:0:" in users


def test_other_roots_have_no_accounts_of_servers(root: Path) -> None:
    prepare_root(root, "")
    assert "mysql" not in (root / "etc/passwd").read_text()
    assert not (root / "etc/nsswitch.conf").exists() and not (root / "var").exists()
