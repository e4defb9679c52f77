"""The guest itself goes to a file, into an empty cache, and boots there, as `diskproof` does it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diskproof.guest.ours import packages
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import GuestFiles, require_guest
from diskproof.qemu.machine import GuestMachine
from support.json_schemas import validate


def call(folder: Path, cache: Path, *words: str) -> dict[str, object]:
    argv = [sys.executable, "-m", "diskproof", "guest", *words, "--json"]
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        argv, cwd=folder, env=env, stdout=subprocess.PIPE, timeout=300, check=True
    )
    told: dict[str, object] = json.loads(done.stdout)
    validate(f"guest-{words[0]}", told)
    return told


@pytest.mark.long
def test_the_guest_boots_where_it_was_imported(
    guest_files: GuestFiles, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = guest_files.kernel.parents[3], tmp_path / "cache"
    file = str(tmp_path / "guest.tar.gz")
    exported = call(tmp_path, ours, "export", file)
    imported = call(tmp_path, theirs, "import", file, "--sha256", str(exported["sha256"]))
    assert imported["id"] == imported["exported_id"] == exported["id"] == guest_files.id
    monkeypatch.setenv("XDG_CACHE_HOME", str(theirs))
    monkeypatch.setattr(packages, "find_suite", lambda: None)  # as on a host that is no Debian
    files = require_guest()
    assert files.id == guest_files.id and theirs in files.root.parents
    with start_guest(files, GuestMachine("tcg"), run_dir=run_dir) as guest:
        assert guest.booted.hello.kernel == files.kernel_release
        done = guest.channel.exec(["fio", "--version"], timeout=60)
        assert done.exit.code == 0 and done.stdout.startswith(b"fio-")
        guest.power_off()
