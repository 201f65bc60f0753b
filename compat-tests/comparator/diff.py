"""Two normalized trees side by side: every field in which they differ, by its path.

Owns: the walk and the names of paths (``topics[name=a].partitions[0].error_code``).  Judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from comparator.encoding import Tree
from comparator.normalize import naming_field


class Absent:
    """Stands for a field or an element that one side does not have."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


class Difference(NamedTuple):
    """One field that differs: its path, Kafka's value and ours."""

    path: str
    kafka: Tree
    ours: Tree


def differences(kafka: Tree, ours: Tree, path: str = "") -> Iterator[Difference]:
    """Every difference between the two trees, outermost first."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in [*kafka, *(name for name in ours if name not in kafka)]:
            below = f"{path}.{name}" if path else name
            yield from _difference_at(below, kafka.get(name, ABSENT), ours.get(name, ABSENT))
    elif isinstance(kafka, list) and isinstance(ours, list):
        yield from _list_differences(kafka, ours, path)
    elif type(kafka) is not type(ours) or kafka != ours:
        yield Difference(path, kafka, ours)


def _list_differences(kafka: list[Tree], ours: list[Tree], path: str) -> Iterator[Difference]:
    """Match elements by name where both sides have one and the same naming field, by position otherwise."""
    name = naming_field(kafka or ours)
    if name is not None and naming_field(ours or kafka) == name:
        kafka_by_name = {f"{name}={element[name]}": element for element in kafka}
        ours_by_name = {f"{name}={element[name]}": element for element in ours}
    else:
        kafka_by_name = {str(index): element for index, element in enumerate(kafka)}
        ours_by_name = {str(index): element for index, element in enumerate(ours)}
    for key in [*kafka_by_name, *(key for key in ours_by_name if key not in kafka_by_name)]:
        yield from _difference_at(f"{path}[{key}]", kafka_by_name.get(key, ABSENT), ours_by_name.get(key, ABSENT))


def _difference_at(path: str, kafka: Tree, ours: Tree) -> Iterator[Difference]:
    if kafka is ABSENT or ours is ABSENT:
        yield Difference(path, kafka, ours)
    else:
        yield from differences(kafka, ours, path)
