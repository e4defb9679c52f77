"""What was typed: consent to destroy data, and the command that goes on or says more."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from diskproof.cli.options import DESTROY_DATA
from diskproof.errors import UsageError

if TYPE_CHECKING:
    from diskproof.backings import Consent
    from diskproof.study.load import Study

ONCE = ("--retry",)
"""Flags that a command that goes on does not repeat: what they ask for has been done."""


def require_consent(context: typer.Context, study: Study, destroy_data: bool) -> Consent:
    """Consent for the devices that a study names, as they are now.

    Raises UsageError where nobody has said that they may be written. What is mounted, in use or
    not empty is refused later, with or without that word.
    """
    from diskproof.backings.consent import NO_CONSENT, find_targets, give_consent

    named = [name for spec in study.backings for name in find_targets(spec)]
    if not named:
        return NO_CONSENT
    if not destroy_data:
        raise UsageError(
            f"the study writes on {', '.join(dict.fromkeys(named))}",
            "all that is there would be lost",
            f"when that can go: {command_again(context, DESTROY_DATA, once=())}",
        )
    return give_consent(study.backings)


def command_again(context: typer.Context, *more: str, once: Sequence[str] = ONCE) -> str:
    """The command as it was typed, without the flags ``once`` and with ``more``, to type again."""
    return shlex.join(["diskproof", *_again(context, more, once)])


def is_typed(context: typer.Context, parameter: str) -> bool:
    """Whether a parameter was given on the command line, and not by the environment."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _again(context: typer.Context, more: Sequence[str], once: Sequence[str]) -> Iterator[str]:
    """Words that are the value of an option are never taken for a flag."""
    valued = {
        name
        for each in context.command.params
        if not getattr(each, "is_flag", True)
        for name in each.opts
    }
    words = iter(context.obj)
    for word in words:
        if word == "--":  # what comes now are arguments
            yield from (*more, word, *words)
            return
        if word not in once:
            yield word
        if word in valued:
            yield next(words)
    yield from more
