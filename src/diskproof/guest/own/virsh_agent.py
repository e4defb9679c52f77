"""A guest agent behind libvirt, which holds its port: virsh carries the words."""

import json
import os
from collections.abc import Mapping
from typing import Any

from diskproof.errors import DiskproofError, RunFailure
from diskproof.guest.own.qemu_agent import AgentCalls
from diskproof.process.start import run

ANSWER_SECONDS = 5


class VirshAgent(AgentCalls):
    """The agent of one domain; ``uri`` is libvirt's connection."""

    def __init__(self, domain: str, uri: str) -> None:
        self._argv = ["virsh", "-q", "-c", uri, "qemu-agent-command"]
        self._domain = domain

    def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = 0.0
    ) -> Any:
        request: dict[str, object] = {"execute": command}
        if arguments is not None:
            request["arguments"] = dict(arguments)
        seconds = int(timeout) or ANSWER_SECONDS
        argv = [*self._argv, "--timeout", str(seconds), "--domain", self._domain]
        try:
            env = {**os.environ, "LIBVIRT_AUTOSTART": "0", "LC_ALL": "C"}  # it starts no daemon
            argv = [*argv, "--cmd", json.dumps(request)]
            done = run(argv, timeout=seconds + 2, check=False, env=env)
        except DiskproofError as error:
            raise RunFailure("guest", error.what, error.why, error.hint) from None
        if done.returncode != 0:
            raise RunFailure("guest", f"virsh refused {command}", done.error_text[:500])
        try:
            answer = json.loads(done.text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "return" not in answer:
            raise RunFailure("guest", "the guest agent talks nonsense", done.text[:200])
        return answer["return"]
