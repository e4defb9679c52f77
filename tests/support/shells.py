"""What three shells offer when Tab is pressed, each as a user has it."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

SECONDS = 120.0
KILL_LINE = b"\x15"
_PROMPT = b"ready>"
_BASH = """
source "$1"
line=$2
read -ra COMP_WORDS <<<"$line"
[[ $line != *' ' ]] || COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
read -r _ _ _ _ function _ < <(complete -p "${COMP_WORDS[0]}")
"$function" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does at Tab: the function that ``complete`` names gets the line in words."""
_ZSHRC = """
fpath=($COMPLETIONS $fpath)
autoload -Uz compinit
compinit -u -d $ZDOTDIR/dump
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits
    builtin compadd -A hits "$@"
    print -rl -- $hits >>$OFFERED
}
bindkey '^I' complete-word
PROMPT='ready>'
"""
"""Every match goes through ``compadd``, where it is written down as well."""


def environment(**more: str) -> dict[str, str]:
    """Ours, with the programs of this installation first on the PATH."""
    folder = str(Path(sys.prefix) / "bin")
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb"} | more


def ask_bash(usr: Path, home: Path, line: str) -> list[str]:
    name = line.split()[0]
    script = usr / "share/bash-completion/completions" / name
    return _run(["bash", "--norc", "-c", _BASH, "bash", str(script), line], home)


def ask_fish(usr: Path, home: Path, line: str) -> list[str]:
    folder = usr / "share/fish/vendor_completions.d"
    asked = "set -p fish_complete_path $argv[1]; complete -C $argv[2]"
    lines = _run(["fish", "--no-config", "-c", asked, str(folder), line], home)
    return [each.split("\t")[0] for each in lines]


def ask_zsh(usr: Path, home: Path, line: str) -> list[str]:
    """Typed at a terminal, for only there its completion works."""
    (home / ".zshrc").write_text(_ZSHRC)
    offered = home / "offered"
    offered.write_text("")
    own = {
        "ZDOTDIR": str(home),
        "COMPLETIONS": str(usr / "share/zsh/vendor-completions"),
        "OFFERED": str(offered),
    }
    screen, terminal = pty.openpty()
    argv = ["zsh", "-d", "-i"]
    shell = subprocess.Popen(
        argv, stdin=terminal, stdout=terminal, stderr=terminal,
        env=environment(**own), cwd=home, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    try:
        _read_until(screen, _PROMPT)
        os.write(screen, line.encode() + b"\t" + KILL_LINE + b"exit\n")
        _read_until(screen, None)
        shell.wait(SECONDS)
    finally:
        shell.kill()
        shell.wait()
        os.close(screen)
    return offered.read_text().split()


def _read_until(screen: int, awaited: bytes | None) -> None:
    """Read a terminal until something stands on it, or until nobody writes to it any more."""
    text = b""
    while awaited is None or awaited not in text:
        assert select.select([screen], [], [], SECONDS)[0], text
        try:
            text += os.read(screen, 1 << 16)
        except OSError:  # EIO: the other end is closed
            assert awaited is None, text
            return


def _run(argv: list[str], home: Path) -> list[str]:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=SECONDS, check=True, cwd=home,
        env=environment(HOME=str(home)),
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split("\n")


SHELLS: Mapping[str, Callable[[Path, Path, str], list[str]]] = {
    "bash": ask_bash,
    "fish": ask_fish,
    "zsh": ask_zsh,
}
