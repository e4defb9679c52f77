"""The gallery on this host: what a power cut leaves of programs as they are installed."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli.app import run_command_line
from diskproof.crash import gallery
from diskproof.errors import HostError
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]


def is_here(name: str) -> bool:
    try:
        return bool(gallery.ask_version(gallery.find_application(name)))
    except HostError:
        return False


def crash(capsys: pytest.CaptureFixture[str], *arguments: str) -> Mapping[str, Any]:
    """What is said of a power cut."""
    capsys.readouterr()
    run_command_line(["crash", *arguments, "--budget", "20s", "--json"])
    rows = json.loads(capsys.readouterr().out)
    return next(row for row in rows if row["fault"] == "power")
