"""``pybroker completion``: scripts by which shells complete commands and options.

Owns: the three scripts.  Each has all words in it, so that a Tab starts no process; a new version prints new ones.
Where no word fits, and behind an option that takes a value, the shell completes names of files.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from pybroker.cli.terminal.output import Output


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class Option(NamedTuple):
    """An option of a command: all of its names, and whether a value follows."""

    names: tuple[str, ...]
    takes_value: bool
    help: str


class Level(NamedTuple):
    """A command, or a group of commands, by the words that lead to it."""

    path: str
    children: dict[str, str]  # what each is for, by its name
    options: list[Option]


def completion(
    shell: Annotated[
        Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell that is to complete.", show_default=False)
    ],
) -> None:
    """Print the script by which a shell completes commands and options.

    For bash: eval "$(pybroker completion bash)" in ~/.bashrc.

    For zsh: eval "$(pybroker completion zsh)" in ~/.zshrc.

    For fish: pybroker completion fish > ~/.config/fish/completions/pybroker.fish
    """
    Output().write(SCRIPTS[shell](list(levels())).encode())


def levels() -> Iterator[Level]:
    """All commands, from ``pybroker`` on."""
    from pybroker.cli.commands.app import command_of

    root = command_of()
    context = typer.Context(root, info_name="pybroker", **root.context_settings)
    waiting = [(root, context)]
    while waiting:
        command, context = waiting.pop()
        children = getattr(command, "commands", {})
        help_text = {name: child.get_short_help_str(limit=200) for name, child in children.items()}
        options = _of_serve() if context.command_path == "pybroker serve" else _of(command, context)
        yield Level(context.command_path, help_text, options)
        waiting += [(child, typer.Context(child, info_name=name, parent=context)) for name, child in children.items()]


def _of(command: Any, context: typer.Context) -> list[Option]:
    return [
        Option(tuple(each.opts), not (each.is_flag or getattr(each, "count", False)), each.help or "")
        for each in command.get_params(context)
        if each.param_type_name == "option"
    ]


def _of_serve() -> list[Option]:
    from pybroker.cli.serve.serve_command import build_parser

    actions = build_parser()._actions
    return [Option(tuple(each.option_strings), each.nargs != 0, each.help or "") for each in actions]


_BASH = """\
_pybroker() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} at=pybroker index words
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$at ${{COMP_WORDS[index]}}" in
            {paths}) at="$at ${{COMP_WORDS[index]}}" ;;
        esac
    done
    case "$at ${{COMP_WORDS[COMP_CWORD - 1]}}" in
        {with_values}) return ;;
    esac
    case "$at" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _pybroker pybroker
"""


def _bash(found: list[Level]) -> str:
    cases = [
        f"        {shlex.quote(level.path)}) words={shlex.quote(' '.join(_words(level)))} ;;" for level in sorted(found)
    ]
    return _BASH.format(paths=_paths(found), with_values=_options_with_values(found), cases="\n".join(cases))


_ZSH = """\
#compdef pybroker
_pybroker() {{
    local at=pybroker index
    local -a candidates
    for ((index = 2; index < CURRENT; index++)); do
        case "$at ${{words[index]}}" in
            {paths}) at="$at ${{words[index]}}" ;;
        esac
    done
    case "$at ${{words[CURRENT - 1]}}" in
        {with_values}) _files; return ;;
    esac
    case "$at" in
{cases}
    esac
    _describe pybroker candidates || _files
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit; compinit }}
compdef _pybroker pybroker
"""


def _zsh(found: list[Level]) -> str:
    def described(name: str, help_text: str) -> str:
        return shlex.quote(f"{name.replace(':', chr(92) + ':')}:{_plain(help_text)}")

    cases = [
        "        {}) candidates=({}) ;;".format(
            shlex.quote(level.path),
            " ".join(
                [
                    *(described(name, help_text) for name, help_text in level.children.items()),
                    *(described(name, option.help) for option in level.options for name in option.names),
                ]
            ),
        )
        for level in sorted(found)
    ]
    return _ZSH.format(paths=_paths(found), with_values=_options_with_values(found), cases="\n".join(cases))


_FISH = """\
function __pybroker_at
    set -l at pybroker
    for word in (commandline -opc)[2..]
        switch "$at $word"
            case {paths}
                set at "$at $word"
        end
    end
    test "$at" = "$argv"
end
{lines}
"""


def _fish(found: list[Level]) -> str:
    lines = []
    for level in sorted(found):
        begin = f"complete -c pybroker -n {_fish_quoted('__pybroker_at ' + level.path)}"
        lines += [
            f"{begin} -f -a {_fish_quoted(name)} -d {_fish_quoted(_plain(help_text))}"
            for name, help_text in level.children.items()
        ]
        for option in level.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            needs = " -r" if option.takes_value else ""
            lines.append(f"{begin} {names}{needs} -d {_fish_quoted(_plain(option.help))}")
    paths = " ".join(_fish_quoted(level.path) for level in sorted(found))
    return _FISH.format(paths=paths, lines="\n".join(lines))


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _words(level: Level) -> list[str]:
    return [*level.children, *(name for option in level.options for name in option.names)]


def _paths(found: list[Level]) -> str:
    return "|".join(shlex.quote(level.path) for level in sorted(found))


def _options_with_values(found: list[Level]) -> str:
    return "|".join(
        shlex.quote(f"{level.path} {name}")
        for level in sorted(found)
        for option in level.options
        if option.takes_value
        for name in option.names
    )


def _plain(text: str) -> str:
    """A help text in one line, without percent signs of argparse."""
    return " ".join(text.replace("%%", "%").split())


SCRIPTS: dict[Shell, Callable[[list[Level]], str]] = {Shell.BASH: _bash, Shell.ZSH: _zsh, Shell.FISH: _fish}
