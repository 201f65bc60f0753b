"""Generated functions: Python source written line by line, compiled, and visible to debuggers.

Owns: the writer, and the registration of generated source in ``linecache``, so that tracebacks and profilers show it.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Elements of arrays between two places where a function in steps stops: a tenth of a millisecond or less.
ELEMENTS_PER_STEP = 128


class Source:
    """The source of one function; ``constants`` are the names that it may use besides built-in ones."""

    __slots__ = ("_indent", "_lines", "_name", "_temporaries", "constants")

    def __init__(self, name: str, constants: dict[str, Any]) -> None:
        self._name = f"<pybroker_protocol: {name}>"
        self._lines: list[str] = []
        self._indent = ""
        self._temporaries = 0
        self.constants = constants

    def line(self, text: str) -> None:
        """Add one line at the current indentation."""
        self._lines.append(f"{self._indent}{text}\n")

    def step(self, value: str = "None") -> None:
        """Add a place where a generator stops every ``ELEMENTS_PER_STEP`` times that it comes by; ``step`` counts."""
        self.line("step += 1")
        with self.block(f"if not step % {ELEMENTS_PER_STEP}:"):
            self.line(f"yield {value}")

    @contextmanager
    def block(self, opening: str | None = None) -> Iterator[None]:
        """Indent what is written inside of ``with``, below the line ``opening`` if given."""
        if opening is not None:
            self.line(opening)
        outer = self._indent
        self._indent += "    "
        yield
        self._indent = outer

    def name(self, prefix: str) -> str:
        """A local variable's name that nothing else in this function has."""
        self._temporaries += 1
        return f"{prefix}_{self._temporaries}"

    def constant(self, prefix: str, value: Any) -> str:
        """The name by which the function reaches ``value``; equal hashable values share one."""
        for known, other in self.constants.items():
            if other is value:
                return known
        name = self.name(prefix)
        self.constants[name] = value
        return name

    def function(self, name: str) -> Callable[..., Any]:
        """Compile what was written and return the function ``name`` that it defines."""
        text = "".join(self._lines)
        linecache.cache[self._name] = (len(text), None, self._lines, self._name)
        namespace = dict(self.constants)
        exec(compile(text, self._name, "exec"), namespace)
        compiled: Callable[..., Any] = namespace[name]
        return compiled
