"""Reports of the host tools: each is what its published schema says. Requires the native programs;
tracing as root the kernel's tracepoints."""

import json
import sys
from pathlib import Path

import pytest

from diskproof.process import start as proc
from diskproof.process.native import require_native
from support.json_schemas import validate

SYNCS = "import os, sys; f = open(sys.argv[1], 'w'); f.write('x'); f.flush(); os.fsync(f)"


@pytest.mark.parametrize("by", [(), ("--by", "preload"), ("--by", "ptrace")], ids=str)
def test_sync_trace(tmp_path: Path, by: tuple[str, ...]) -> None:
    program, out = str(require_native("diskproof-sync-trace")), tmp_path / "trace.json"
    command = [sys.executable, "-c", SYNCS, str(tmp_path / "file")]
    proc.run([program, *by, "--json", "-o", str(out), "--", *command], timeout=60)
    told = json.loads(out.read_text())
    validate("sync-trace", told)
    assert told["calls"] >= 1 and told["by_call"] and told["groups"]


@pytest.mark.parametrize("how", [(), ("--preload",), ("--only", ".")], ids=str)
def test_sync_drop(tmp_path: Path, how: tuple[str, ...]) -> None:
    program, out = str(require_native("diskproof-sync-drop")), tmp_path / "drop.json"
    command = [sys.executable, "-c", SYNCS, str(tmp_path / "file")]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    argv = [program, "--quiet", "--json", str(out), *how, "--", *command]
    proc.run(argv, timeout=60, cwd=elsewhere)
    told = json.loads(out.read_text())
    validate("sync-drop", told)
    assert told["dropped_total"] == (0 if "--only" in how else 1)


def test_nocache(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    argv = [str(require_native("diskproof-nocache")), "--json", "--", "cat", str(tmp_path / "file")]
    told = json.loads(proc.run(argv, timeout=60).error_text)
    validate("nocache", told)
    assert told["files"] >= 1
