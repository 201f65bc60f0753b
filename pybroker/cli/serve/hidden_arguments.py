"""Arguments of ``pybroker serve`` that one process hands another in its environment.

Owns: the names of these variables.  Everybody on a machine sees the arguments of a process, and its own user alone its
environment: settings and users may be secrets.  Standard library alone, as the start-up budget asks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

_PREFIX: Final = "_PYBROKER_SERVE_ARGUMENT_"  # and a number, since one variable has a bound that all together do not


def in_environment(arguments: Sequence[str]) -> dict[str, str]:
    """The variables with which a process begins that is to have these arguments in front of its own."""
    return {f"{_PREFIX}{number}": argument for number, argument in enumerate(arguments)}


def take_from_environment() -> list[str]:
    """The arguments that this process was handed so; its own children do not get them."""
    arguments: list[str] = []
    while (argument := os.environ.pop(f"{_PREFIX}{len(arguments)}", None)) is not None:
        arguments.append(argument)
    return arguments
