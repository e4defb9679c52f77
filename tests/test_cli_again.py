"""The command that goes on, made of what was typed: it means the same when it is typed again."""

import shlex
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from diskproof.cli.app import app
from diskproof.cli.typed import command_again

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
VALUE = TEXT.filter(lambda text: not text.startswith("-"))
WORD = VALUE.filter(bool)
TIME = st.sampled_from(["30m", "2h", "1s"])
ADDRESS = st.sampled_from(["tcp://lab:8786", "--retry"])
VALUED = {"--store": TEXT.filter(bool), "--budget": TIME}
FLAGS = ("--retry", "--destroy-data", "--quiet", "-q", "--json")
OPTIONS = {
    ("run",): VALUED,
    ("crash",): {**VALUED, "--cluster": ADDRESS},
    ("crash", "study"): {**VALUED, "--writer": TEXT, "--check": TEXT, "--seed": st.just("7")},
    ("tiles",): {**VALUED, "--most": st.just("3"), "--scale": st.just("1/7")},
}


def parse(typed: list[str]) -> tuple[typer.Context, dict[str, Any]]:
    """The context of the verb that the words call, and what it gets."""
    context: Any = typer.main.get_command(app).make_context("diskproof", list(typed), obj=typed)
    while hasattr(context.command, "commands"):
        name, command, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)
    return context, context.params


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    verb = draw(st.sampled_from(sorted(OPTIONS)))
    words = []
    for name, values in OPTIONS[verb].items():
        if draw(st.booleans()):
            value = draw(values)
            words += draw(st.sampled_from([[[name, value]], [[f"{name}={value}"]]]))
    words += [[flag] for flag in draw(st.lists(st.sampled_from(FLAGS), unique=True))]
    words = draw(st.permutations(words))
    study = draw(st.sampled_from([[["study.toml"]], [["--", "--retry"]], [["--", "a b.toml"]]]))
    head = [word for each in words for word in each]
    return [*verb, *head, *study[0]]


@given(commands())
def test_what_goes_on_is_what_was_typed(typed: list[str]) -> None:
    context, before = parse(typed)
    program, *words = shlex.split(command_again(context))
    again, after = parse(words)
    assert program == "diskproof" and again.command_path == context.command_path
    assert after == {**before, "retry": False}


@given(commands())
def test_a_word_can_be_added(typed: list[str]) -> None:
    context, before = parse(typed)
    words = shlex.split(command_again(context, "--destroy-data", once=()))[1:]
    assert parse(words)[1] == {**before, "destroy_data": True}


def test_what_the_environment_says_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKPROOF_STORE", "postgresql://lab:secret@db/runs")
    context, params = parse(["run", "study.toml", "--retry"])
    assert params["store"].startswith("postgresql")
    assert command_again(context) == "diskproof run study.toml"
