"""Runs all callbacks that wait for one thing: a fault of one keeps no other from its call.

Owns: how completions, listeners and watchers are run in this package.  What a fault means is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec

P = ParamSpec("P")


def run_each(callbacks: Iterable[Callable[P, object]], *args: P.args, **kwargs: P.kwargs) -> list[Exception]:
    """Run every callback with the arguments, in order; what those raised that failed."""
    failures: list[Exception] = []
    for callback in tuple(callbacks):
        try:
            callback(*args, **kwargs)
        except Exception as failure:
            failures.append(failure)
    return failures
