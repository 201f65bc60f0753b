"""Of which topics the offsets are that a stream's reader has given out: their ids, for as long as the reader lives.

Offsets alone do not tell a topic from a former one of its name, and a checkpoint has offsets alone, as Spark's own
connector writes them.  A checkpoint of an earlier version has ids beside them, which count where nothing else is known.
"""

import json
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from pybroker.pipeline.topics.topic_partitions import (
    Offsets,
    OffsetTree,
    TopicPartition,
    ids_of_tree,
    offsets_of_tree,
    tree_of_offsets,
)

# Spark holds few at once: where a micro-batch begins and ends, and where the next one may end.
_KEPT_MAX = 16


class PlannedIds:
    """The ids by offsets."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Mapping[str, str]] = OrderedDict()

    def give(self, offsets: Offsets, ids: Mapping[str, str]) -> OffsetTree:
        """What Spark is given for offsets; ``ids`` are kept."""
        tree = tree_of_offsets(offsets)
        self._keep(_key(tree), {topic: ids[topic] for topic in tree.keys() & ids.keys()})
        return tree

    def of(self, tree: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """The ids of the topics of offsets that Spark gives back."""
        key = _key(tree)
        if key not in self._kept:
            return ids_of_tree(tree)
        self._kept.move_to_end(key)
        return dict(self._kept[key])

    def _keep(self, key: str, ids: Mapping[str, str]) -> None:
        self._kept[key] = ids
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)


def distinguishable(starts: Offsets, ends: Offsets, anew: Collection[str]) -> dict[TopicPartition, int]:
    """The ends; where they are the starts, though topics that were made anew have records, one offset fewer.

    To Spark nothing would be new otherwise.  The next micro-batch takes the record that is left.
    """
    found = dict(ends)
    if found == starts:
        for at in sorted(at for at, end in found.items() if at.topic in anew and end > 0)[:1]:
            found[at] -= 1
    return found


def _key(tree: Mapping[str, Mapping[str, Any]]) -> str:
    return json.dumps(tree_of_offsets(offsets_of_tree(tree)))
