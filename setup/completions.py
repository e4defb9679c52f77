"""Completion for bash, zsh and fish, from what --help says: setup/completions.py FOLDER

diskproof itself is asked while one types; what the tools offer never changes, and is written down.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from typer.completion import get_completion_script

from help_text import TOOLS, Help, Row, ask_help, find_choices, find_options, takes_value

PROGRAM = "diskproof"
PLACES = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/vendor-completions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}
"""Where Debian's packages have them, below /usr."""


def write_completions(folder: Path) -> list[Path]:
    """A file for each program and shell, in its place below ``folder``; returns their paths."""
    helps = {tool: ask_help(tool) for tool in TOOLS}
    written = []
    for shell, place in PLACES.items():
        texts = {name: WRITERS[shell](name, told) for name, told in helps.items()}
        for name, text in (texts | {PROGRAM: _of_diskproof(shell)}).items():
            path = folder / place.format(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            written.append(path)
    return written


def _of_diskproof(shell: str) -> str:
    script = get_completion_script(
        prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell
    )
    # zsh runs the file as the function of its name when it is first asked: it has to answer, too.
    first = f'\n[[ $funcstack[1] == _{PROGRAM} ]] && _{PROGRAM}_completion "$@"'
    return f"{script}{first if shell == 'zsh' else ''}\n"


def _options(told: Help) -> Iterator[Row]:
    return (row for row in told.rows() if row.name.startswith("-"))


def _runs_a_command(told: Help) -> bool:
    return any("COMMAND" in row.name or "DROPPER" in row.name for row in told.rows("Arguments"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


def _short(row: Row) -> str:
    return row.told[0] if row.told else ""


def _bash(name: str, told: Help) -> str:
    function = f"_{name.replace('-', '_')}"
    options = [way for row in _options(told) for way in find_options(row)]
    commands = " ".join(row.name for row in told.rows("Commands"))
    chosen = [
        f"    {'|'.join(find_options(row))}) offered={_quoted(' '.join(find_choices(row)))} ;;"
        for row in _options(told)
        if find_choices(row)
    ]
    return "\n".join(
        [
            f"{function}() {{",
            "    local word=${COMP_WORDS[COMP_CWORD]} offered=",
            '    [[ " ${COMP_WORDS[*]:1:COMP_CWORD-1} " != *" -- "* ]] || return',
            "    case ${COMP_WORDS[COMP_CWORD-1]} in",
            f"    {name}|*/{name}) offered={_quoted(commands)} ;;",
            *chosen,
            "    esac",
            f"    [[ $word != -* ]] || offered={_quoted(' '.join(options))}",
            '    mapfile -t COMPREPLY < <(compgen -W "$offered" -- "$word")',
            "}",
            f"complete -o default -F {function} {name}",
            "",
        ]
    )


def _zsh(name: str, told: Help) -> str:
    specs = [_zsh_option(row) for row in _options(told)]
    if commands := " ".join(row.name for row in told.rows("Commands")):
        specs.append(f"'1:command:({commands})'")
    specs.append("'*::: :_normal'" if _runs_a_command(told) else "'*:file:_files'")
    return "\n".join([f"#compdef {name}", " \\\n    ".join(["_arguments -s -S", *specs]), ""])


def _zsh_option(row: Row) -> str:
    ways = find_options(row)
    told = _short(row).replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]")
    choices = find_choices(row)
    value = f":value:({' '.join(choices)})" if choices else ":value:_files"
    body = _quoted(f"[{told}]{value if takes_value(row) else ''}")
    if len(ways) == 1:
        return f"{ways[0]}{body}"
    return f"'({' '.join(ways)})'{{{','.join(ways)}}}{body}"


def _fish(name: str, told: Help) -> str:
    lines = []
    for row in _options(told):
        words = ["complete", "-c", name]
        for way in find_options(row):
            words += ["-l", way[2:]] if way.startswith("--") else ["-s", way[1:]]
        if choices := find_choices(row):
            words += ["-x", "-a", _fish_quoted(" ".join(choices))]
        elif takes_value(row):
            words.append("-r")
        lines.append(" ".join([*words, "-d", _fish_quoted(_short(row))]))
    for row in told.rows("Commands"):
        asked = "-f -n __fish_use_subcommand -a"
        lines.append(f"complete -c {name} {asked} {row.name} -d {_fish_quoted(_short(row))}")
    if _runs_a_command(told):
        lines.append(f"complete -c {name} -x -a '(__fish_complete_subcommand)'")
    return "\n".join([*lines, ""])


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", r"\\").replace("'", r"\'") + "'"


WRITERS: Mapping[str, Callable[[str, Help], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


if __name__ == "__main__":
    for completion in write_completions(Path(sys.argv[1])):
        print(completion)
