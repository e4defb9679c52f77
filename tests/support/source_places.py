"""Programs that are recorded, and where each of their changes came from."""

import json
import subprocess
from pathlib import Path
from typing import Any

from diskproof.process.native import require_native
from support.recording import make_places, start_recording


def compile_program(folder: Path, source: str, *options: str, compiler: str = "gcc") -> Path:
    """A program in a folder of its own, which is not recorded."""
    (folder / "app.c").write_text(source)
    words = [compiler, *options, "-o", "app", "app.c", "-pthread"]
    subprocess.run(words, cwd=folder, check=True)
    return folder / "app"


def record(tmp_path: Path, program: Path) -> tuple[list[dict[str, Any]], str]:
    """What the explorer says of each change of a program, and what that printed."""
    places = make_places(tmp_path)
    with start_recording(places, "--callers", "--stacks") as recording:
        done = subprocess.run(
            [program], cwd=recording.mount, check=True, capture_output=True, text=True
        )
        recording.finish()
    argv = [require_native("diskproof-states"), "operations", places.log, places.base]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in listed.splitlines()], done.stdout


def of_operation(found: list[dict[str, Any]], kind: str, path: str) -> list[dict[str, Any]]:
    """The frames of one operation."""
    (one,) = (each for each in found if each["operation"] == kind and each["path"] == path)
    frames: list[dict[str, Any]] = one["by"].get("frames", [])
    return frames


def place_of(found: list[dict[str, Any]], kind: str, path: str) -> tuple[str, str, int]:
    """Name of the file, function and line of one operation."""
    (one,) = (each for each in found if each["operation"] == kind and each["path"] == path)
    place = one["by"]["frames"][one["by"].get("place", 0)]
    return Path(place["file"]).name, place["function"], place["line"]


def line_of(source: str, mark: str) -> int:
    """The line that ends with a mark behind ``# `` or ``// ``."""
    lines = enumerate(source.splitlines(), 1)
    return next(n for n, line in lines if line.endswith((f"# {mark}", f"// {mark}")))
