"""What the commands' help calls the values of arguments and options.

Owns: one look for all commands, whatever the version of typer would show: a flag has no value, an option without a
name of its own for its value has the option's name, no type of Python's stands anywhere, and a paragraph is as wide as
the terminal and not as its docstring.  Owns no help text.
"""

from __future__ import annotations

from typing import Any

import typer


def name_values(command: Any, context: typer.Context) -> None:
    """Have the help of a command, and of those below it, show values by names."""
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument":
            _show_by_its_name_alone(parameter)
        elif parameter.is_flag:
            parameter.metavar = ""
        elif parameter.metavar is None:
            is_number = any(getattr(parameter, bound, None) is not None for bound in ("min", "max"))
            parameter.metavar = "N" if is_number else max(parameter.opts, key=len).lstrip("-").upper()
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for name, child in getattr(command, "commands", {}).items():
        name_values(child, typer.Context(child, info_name=name, parent=context))


def _show_by_its_name_alone(argument: Any) -> None:
    """The names of arguments say where one may be left out or repeated; typer would say so once more."""
    argument.display_type_rich = lambda ctx: None
    argument._usage_display_name = lambda: argument.metavar
