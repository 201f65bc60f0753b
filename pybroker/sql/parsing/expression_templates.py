"""Expressions made of a template, as the tables of functions have them: ``_0`` stands for the first argument.

Owns where arguments and results need parentheses.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp

_CLOSER = (exp.Binary, exp.AtTimeZone)


def made(template: str, dialect: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    """The template's expression with copies of the arguments."""
    whole = exp.Tuple(expressions=[sqlglot.parse_one(template, dialect=dialect)])
    for column in list(whole.find_all(exp.Column)):
        number = column.name.removeprefix("_")
        if number.isdigit():
            argument = arguments[int(number)].copy()
            is_inside = isinstance(argument, exp.Binary) and isinstance(column.parent, _CLOSER)
            column.replace(exp.paren(argument) if is_inside else argument)
    found: exp.Expr = whole.expressions[0]
    return exp.paren(found) if isinstance(found, exp.Binary) else found
