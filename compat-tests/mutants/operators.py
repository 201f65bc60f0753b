"""Operators: how an expression of the broker is found by the names in it, and what takes its place.

No source is quoted: a comparison is found by names that it mentions, any other expression by the name that is read or
called, whatever stands around it.  Owns: which expressions of a definition an operator changes, and how.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

_NOT_CODE: Final = frozenset({"annotation", "returns", "decorator_list"})
_OTHER_BOUND: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


@dataclass(frozen=True)
class Operator:
    """``told`` is what it looks for, in words; ``becomes`` makes a new expression each time."""

    told: str
    finds: Callable[[ast.expr], bool]
    becomes: Callable[[ast.expr], ast.expr]


def always(*names: str) -> Operator:
    """The comparison of these holds, whatever is compared."""
    return _of_comparison(names, lambda _: ast.Constant(True))


def never(*names: str) -> Operator:
    """The comparison of these holds for nothing."""
    return _of_comparison(names, lambda _: ast.Constant(False))


def off_by_one(*names: str) -> Operator:
    """The bound of the comparison of these counts where it did not, and the other way round."""
    return _of_comparison(names, _with_other_bounds)


def instead(name: str, new: str) -> Operator:
    """What is read or called by that name, with its object and its arguments, is the expression ``new``."""
    return Operator(f"use of {name}", partial(_uses, name), lambda _: ast.parse(new, mode="eval").body)


class Site(NamedTuple):
    """An expression, and what puts another one in its place."""

    expression: ast.expr
    put: Callable[[ast.expr], None]


def sites(definition: ast.AST, operator: Operator) -> list[Site]:
    """Those of a definition that the operator finds, in the order of the source."""
    found = [site for site in _sites(definition) if operator.finds(site.expression)]
    return sorted(found, key=lambda site: (site.expression.lineno, site.expression.col_offset))


def _sites(node: ast.AST) -> Iterator[Site]:
    """All expressions; of a call the whole, not the name that is called."""
    for field, value in ast.iter_fields(node):
        if field in _NOT_CODE:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and field == "func"):
                put = partial(value.__setitem__, index) if isinstance(value, list) else partial(setattr, node, field)
                yield Site(child, put)
            if isinstance(child, ast.AST):
                yield from _sites(child)


def _of_comparison(names: tuple[str, ...], becomes: Callable[[ast.expr], ast.expr]) -> Operator:
    return Operator(f"comparison of {' and '.join(names)}", partial(_compares, names), becomes)


def _compares(names: tuple[str, ...], expression: ast.expr) -> bool:
    return isinstance(expression, ast.Compare) and {_name(node) for node in ast.walk(expression)}.issuperset(names)


def _uses(name: str, expression: ast.expr) -> bool:
    used = expression.func if isinstance(expression, ast.Call) else expression
    return _name(used) == name


def _name(node: ast.AST) -> str | None:
    """The name that is read there, without the object that has it."""
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        return node.id if isinstance(node, ast.Name) else node.attr
    return None


def _with_other_bounds(comparison: ast.expr) -> ast.expr:
    assert isinstance(comparison, ast.Compare)
    ops = [_OTHER_BOUND.get(type(op), type(op))() for op in comparison.ops]
    return ast.Compare(comparison.left, ops, comparison.comparators)
