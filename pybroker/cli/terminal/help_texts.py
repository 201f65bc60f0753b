"""What the commands' help calls the values of arguments and options, and how it speaks of a value that is wrong.

Owns: one look for all commands, whatever the version of typer would show:
- A flag has no value, and a value without a name of its own has the option's name.
- No type of Python's stands anywhere, and limits stand where they say something.
- An option that may be given again says so.
- A paragraph is as wide as the terminal and not as its docstring.

Owns no help text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

# From here on a limit is one of the protocol's integers, and of no use to a person.
_LIMIT_WITHOUT_MEANING: Final = 2**15 - 1
_REPEATABLE: Final = "repeatable"


def name_values(command: Any, context: typer.Context) -> None:
    """Have the help of a command, and of those below it, show values by names."""
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument":
            _show_by_its_name_alone(parameter)
        elif parameter.is_flag:
            parameter.metavar = ""
        elif parameter.metavar is None:
            parameter.metavar = "N" if _bounds(parameter) else max(parameter.opts, key=len).lstrip("-").upper()
        if isinstance(parameter.default, float) and parameter.default.is_integer():
            parameter.default = int(parameter.default)  # 30, and not 30.0; a value is made a float as before
        _say_limits(parameter)
        if parameter.param_type_name == "option" and parameter.multiple:
            parameter.help = _ending(parameter.help or "", _REPEATABLE)
        parameter.process_value = _in_plain_words(parameter, parameter.process_value)
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for name, child in getattr(command, "commands", {}).items():
        name_values(child, typer.Context(child, info_name=name, parent=context))


def _show_by_its_name_alone(argument: Any) -> None:
    """The names of arguments say where one may be left out or repeated; typer would say so once more."""
    argument.display_type_rich = lambda ctx: None
    argument._usage_display_name = lambda: argument.metavar


def _bounds(parameter: Any) -> tuple[Any, Any] | None:
    """The least and the greatest value, None for none; nothing where both are missing."""
    least, greatest = getattr(parameter, "min", None), getattr(parameter, "max", None)
    return None if least is None and greatest is None else (least, greatest)


def _say_limits(parameter: Any) -> None:
    """As text behind the help, where both are a person's: typer's ``0<=x<=2147483647`` is a line of noise."""
    bounds = _bounds(parameter)
    if bounds is None:
        return
    parameter._get_number_range_help_str = lambda: None
    least, greatest = bounds
    if least is not None and greatest is not None and greatest < _LIMIT_WITHOUT_MEANING:
        parameter.help = _ending(parameter.help or "", f"{least:g} to {greatest:g}")


def _ending(text: str, what: str) -> str:
    """The sentence with something more at its end."""
    return text if what in text else f"{text.removesuffix('.')}; {what}."


def _in_plain_words(parameter: Any, process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``process_value`` of a parameter, whose refusals are sentences for a person."""

    def processed(context: Any, value: Any) -> Any:
        try:
            return process(context, value)
        except typer.BadParameter as error:
            # One that is missing is of a class of its own.
            if type(error) is typer.BadParameter:
                error.message = _plain(parameter, value, error.message)
            raise

    return processed


def _plain(parameter: Any, value: Any, message: str) -> str:
    bounds = _bounds(parameter)
    if bounds is None:
        is_number = message.startswith(("Input should be a valid integer", "Input should be a valid number"))
        return f"{value!r} is no number" if is_number else message.removeprefix("Value error, ")
    least, greatest = (None if bound is None else f"{bound:.15g}" for bound in bounds)
    if greatest is None:
        return f"{value!r} is no number of {least} or more"
    return f"{value!r} is no number from {least} to {greatest}"
