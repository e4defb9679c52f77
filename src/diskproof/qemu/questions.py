"""QMP without a connection: a list of commands goes in, the answers come out, QEMU is gone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.cage import Cage
from diskproof.process.start import run

Command = tuple[str, Mapping[str, object]]


@dataclass(frozen=True)
class QemuAnswer:
    """What QEMU said to one command: ``result`` (JSON), or ``error`` in its words; ``silent`` if it
    said nothing and ended."""

    result: object = None
    error: str = ""
    silent: bool = False


def ask(
    argv: Sequence[str],
    commands: Sequence[Command],
    *,
    timeout: float,
    cwd: Path | None = None,
    confined: bool = False,
    cage: Cage | None = None,
    pass_fds: Sequence[int] = (),
) -> list[QemuAnswer]:
    """Start a QEMU program that talks QMP on stdin and stdout, ask, and end it.

    Raises what ``run`` raises.
    """
    done = run(
        argv,
        timeout=timeout,
        stdin=render_commands(commands),
        cwd=cwd,
        check=False,
        confined=confined,
        cage=cage,
        pass_fds=pass_fds,
    )
    words = f"QEMU gave no answer; {done.error_text[-300:]}".rstrip("; ")
    silent = QemuAnswer(error=words, silent=True)
    answers = parse_answers(done.stdout)
    return [answers.get(number, silent) for number in range(len(commands))]


def render_commands(commands: Sequence[Command]) -> bytes:
    """QMP on one line each; the last one ends QEMU."""
    lines: list[dict[str, object]] = [{"execute": "qmp_capabilities"}]
    lines += [
        {"execute": name, "arguments": dict(arguments), "id": number}
        for number, (name, arguments) in enumerate(commands)
    ]
    return "".join(f"{json.dumps(line)}\n" for line in [*lines, {"execute": "quit"}]).encode()


def parse_answers(text: bytes) -> dict[int, QemuAnswer]:
    """Answers by the number of their command; greeting, events and noise are passed over."""
    found = {}
    for line in text.splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if not isinstance(item, dict) or not isinstance(item.get("id"), int):
            continue
        error = item.get("error")
        said = str(error.get("desc", "error")) if isinstance(error, dict) else ""
        found[item["id"]] = QemuAnswer(item.get("return"), said)
    return found
