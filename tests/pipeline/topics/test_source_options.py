"""What the options of a read mean, and what is refused."""

import re
from typing import Any

import pytest

from pybroker.pipeline.topics import sink_options
from pybroker.pipeline.topics.source_options import (
    ISOLATION_LEVEL_DEFAULT,
    OPTIONS,
    ByOffset,
    ByTimestamp,
    Edge,
    SourceOptions,
    Subscription,
    read_source_options,
)
from pybroker.pipeline.topics.topic_partitions import TopicPartition, ids_of_tree, offsets_of_tree, tree_of_offsets
from tests.source_tree import ROOT

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**options: str) -> SourceOptions:
    return read_source_options({**SERVERS, "subscribe": "t", **options}, streaming=False)


def stream(**options: str) -> SourceOptions:
    return read_source_options({**SERVERS, "subscribe": "t", **options}, streaming=True)


def test_a_batch_reads_all_and_a_stream_what_comes() -> None:
    assert (batch().starting, batch().ending) == (Edge.EARLIEST, Edge.LATEST)
    assert stream().starting is Edge.LATEST


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("subscribe", "a, b,", Subscription(topics=("a", "b"))),
        ("subscribePattern", "a.*", Subscription(pattern="a.*")),
        ("assign", '{"t": [0, 1]}', Subscription(assigned=frozenset({T0, T1}))),
    ],
)
def test_partitions_are_named_in_one_of_three_ways(name: str, value: str, meant: Subscription) -> None:
    assert read_source_options({**SERVERS, name: value}, streaming=False).subscription == meant


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"startingOffsets": "earliest"}, Edge.EARLIEST),
        ({"startingOffsets": '{"t": {"0": 23, "1": -2}}'}, ByOffset({T0: 23, T1: -2})),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 1000}}'}, ByTimestamp({T0: 1000})),
        ({"startingTimestamp": "1000", "startingOffsets": "latest"}, ByTimestamp({}, 1000)),
    ],
)
def test_a_timestamp_wins_over_offsets(options: dict[str, str], meant: Any) -> None:
    assert stream(**options).starting == meant


def test_names_of_options_have_no_case() -> None:
    assert batch(STARTINGoffsets="Earliest", MINPARTITIONS="7").min_partitions == 7


def test_committed_records_are_read_unless_others_are_asked_for() -> None:
    assert batch().client["isolation.level"] == stream().client["isolation.level"] == "read_committed"
    assert batch(**{"kafka.isolation.level": "read_uncommitted"}).client["isolation.level"] == "read_uncommitted"


def test_the_page_states_the_level_of_isolation_that_is_the_default() -> None:
    page = (ROOT / "docs" / "pipeline" / "topics.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `kafka.isolation.level`")]
    assert f"`{ISOLATION_LEVEL_DEFAULT}` (default)" in row


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "exactly one of the options"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "exactly one of the options"),
        ({"subscribe": " , "}, "names nothing"),
        ({"assign": "t-0"}, "option assign: expected"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "cannot be latest in a batch"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -1}}'}, "cannot be latest in a batch"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "cannot be earliest in a batch"),
        ({"subscribe": "t", "endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest in a batch"),
        ({"subscribe": "t", "minPartitions": "0"}, "option minPartitions: must be positive"),
        ({"subscribe": "t", "failOnDataLoss": "no"}, "option failOnDataLoss: must be true or false"),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, "option maxTriggerDelay: must be a time"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "unknown option startingoffset; did you mean"),
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"},
            "more than maxOffsetsPerTrigger",
        ),
        ({"subscribe": "t", "startingOffsetsByTimestampStrategy": "later"}, "must be error or latest"),
        ({"subscribe": "t", "kafka.group.id": "g", "kafka.auto.offset.reset": "latest"}, "set startingOffsets"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_name(options: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_source_options({**SERVERS, **options}, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ValueError, match=f"option {name} is not valid in streaming"):
        stream(**{name: "latest"})


def test_an_address_must_be_given() -> None:
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers must be set"):
        read_source_options({"subscribe": "t"}, streaming=False)


def test_offsets_survive_the_checkpoint() -> None:
    offsets = {T1: 7, T0: 3, TopicPartition("a", 12): 0}
    assert offsets_of_tree(tree_of_offsets(offsets)) == offsets
    assert tree_of_offsets(offsets) == {"a": {"12": 0}, "t": {"0": 3, "1": 7}}
    # As an earlier version wrote them.
    with_ids: dict[str, dict[str, Any]] = {"a": {"12": 0}, "t": {"0": 3, "1": 7, "id": "Zm9v"}}
    assert (offsets_of_tree(with_ids), ids_of_tree(with_ids)) == (offsets, {"t": "Zm9v"})


def test_the_page_has_each_option_and_no_other() -> None:
    page = (ROOT / "docs" / "pipeline" / "topics.md").read_text()
    for heading, options in (("## Read options", OPTIONS), ("## Write options", sink_options.OPTIONS)):
        section = page.partition(heading)[2].partition("\n## ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        named = re.findall(r"`(\w[\w.]*)`", " ".join(rows))
        assert sorted(name for name in named if not name.startswith("kafka.")) == sorted(options)
