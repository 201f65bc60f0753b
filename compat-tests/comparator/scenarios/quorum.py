"""DescribeQuorum of a broker that is its whole quorum: who leads it, and what is asked of anything else."""

from __future__ import annotations

from comparator.boundaries import vary
from comparator.broker import Broker
from comparator.encoding import Tree
from comparator.registry import scenario

QUORUM = "__cluster_metadata"
# Of one broker's own log, or store: no two have the same, and all that can be asked is whether there are any.
_ITS_OWN = ("leader_epoch", "high_watermark", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp")


def without_offsets(reply: Tree) -> Tree:
    """A reply that says of offsets, epochs and times whether they are known."""
    if isinstance(reply, list):
        return [without_offsets(each) for each in reply]
    if not isinstance(reply, dict):
        return reply
    return {
        name: ("known" if value > 0 else value) if name in _ITS_OWN else without_offsets(value)
        for name, value in reply.items()
    }


def topics(*names: str, partitions: tuple[int, ...] = (0,)) -> Tree:
    return [{"topic_name": name, "partitions": [{"partition_index": each} for each in partitions]} for name in names]


@scenario
def describe_quorum(broker: Broker) -> None:
    for version in broker.versions("DescribeQuorum"):
        for note, asked in {
            "another topic": topics("another"),
            "another partition": topics(QUORUM, partitions=(1,)),
            "two partitions": topics(QUORUM, partitions=(0, 1)),
            "no partition": topics(QUORUM, partitions=()),
            "two topics": topics(QUORUM, "another"),
            "nothing": [],
        }.items():
            broker.call("DescribeQuorum", version, note, topics=asked)


@scenario
def describe_quorum_boundaries(broker: Broker) -> None:
    vary(broker, "DescribeQuorum", lambda _version, _name: {"topics": topics(QUORUM)}, narrow=without_offsets)
