"""Whether two documents of JSON have one shape: the same keys, with values of the same kinds.

Elements of a list are alike, so that their shapes are one; null may stand for any kind.  States and types of connectors
count as they are, since consoles go by them.  Maps by names of the user's, such as configurations, have values of one
shape and any keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

# What has keys of the user's, by the name of the field.
_MAPS: Final = frozenset({"config", "partition", "offset"})
_COUNT_AS_THEY_ARE: Final = frozenset({"state", "error_code"})
_TYPES: Final = frozenset({"source", "sink", "unknown"})
_ANY: Final = "*"


@dataclass(slots=True)
class Shape:
    """Of one value, or of several in one place."""

    kinds: set[str] = field(default_factory=set)
    parts: dict[str, Shape] = field(default_factory=dict)

    def take(self, value: Any, name: str = "", *, is_map: bool = False) -> None:
        """One value more in this place, whose field is called so."""
        if isinstance(value, dict):
            self.kinds.add("object")
            for key, each in value.items():
                part = _ANY if is_map or name in _MAPS else key
                self.parts.setdefault(part, Shape()).take(each, part)
        elif isinstance(value, list):
            self.kinds.add("list")
            for each in value:
                self.parts.setdefault("[]", Shape()).take(each)
        elif value is not None:
            self.kinds.add(_kind(value, name))


def differences(theirs: Any, ours: Any, *, is_map: bool = False) -> list[str]:
    """Where two documents have other shapes, a line each; ``is_map`` where the whole is one.  None is no document."""
    if (theirs is None) != (ours is None):
        return [f": only {'there' if ours is None else 'here'}"]
    there, here = Shape(), Shape()
    there.take(theirs, is_map=is_map)
    here.take(ours, is_map=is_map)
    return _differences(there, here, "")


def _differences(theirs: Shape, ours: Shape, path: str) -> list[str]:
    if theirs.kinds and ours.kinds and theirs.kinds != ours.kinds:
        return [f"{path}: {_listed(theirs.kinds)} there, {_listed(ours.kinds)} here"]
    found = []
    for name in sorted(theirs.parts.keys() | ours.parts.keys()):
        at = f"{path}.{name}"
        if name in theirs.parts and name in ours.parts:
            found += _differences(theirs.parts[name], ours.parts[name], at)
        elif name not in ("[]", _ANY):  # an empty list, or an empty map, has any shape
            found.append(f"{at}: only {'there' if name in theirs.parts else 'here'}")
    return found


def _kind(value: Any, name: str) -> str:
    if name in _COUNT_AS_THEY_ARE or (name == "type" and value in _TYPES):
        return repr(value)
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, (int, float)) else "text"


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))
