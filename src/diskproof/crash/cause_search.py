"""Every cause of a loss, its cure, and the flushes that no promise needs: asked of the explorer."""

import json
import time
from pathlib import Path
from typing import Any

from diskproof.crash.explore import SLACK_SECONDS, StateSearch, explorer_request
from diskproof.process.native import require_native
from diskproof.process.owner import write_private
from diskproof.process.start import start_process
from diskproof.records.causes import ODD, read_causes


def look_for_causes(search: StateSearch, room: Path) -> dict[str, Any]:
    """What a verdict keeps of them, as ``read_causes`` takes it; a ``failure`` is in the answer.

    ``search.seconds`` are for all of it; the end is told, not the course.
    """
    request, said, log = (room / f"causes.{end}" for end in ("json", "jsonl", "log"))
    content, variables = explorer_request(search)
    write_private(request, json.dumps(content).encode())
    deadline = time.monotonic() + search.seconds + SLACK_SECONDS
    argv = [str(require_native("diskproof-states")), "causes", str(request)]
    with said.open("wb") as stdout:
        starting = start_process(
            argv, name="states", log=log, cwd=room, stdout=stdout, variables=variables
        )
        with starting as process:
            status = process.wait(max(0.1, deadline - time.monotonic()))
    try:
        found = _gather(said, status)
        read_causes(found)
    except ODD as error:
        return {"failure": f"the explorer said what nobody understands: {error}"}
    return found


def _gather(said: Path, status: int | None) -> dict[str, Any]:
    """The summary with the causes in it."""
    found: dict[str, Any] = {"found": []}
    with said.open("rb") as lines:
        for line in lines:
            content = json.loads(line)
            kind = content.pop("type")
            if kind == "cause":
                found["found"].append(content)
            elif kind == "causes":
                found |= {**content, "found": found["found"]}
            elif kind == "error":
                found["failure"] = f"{content['what']}: {content['why']}"[:2000]
    if status is None:
        found["failure"] = "the explorer did not end in its time"
    elif status and "failure" not in found:
        found["failure"] = f"the explorer ended with status {status}"
    return found
