"""How long the compiled codec takes per message, in microseconds: the best of several rounds.

Run: ``.venv/bin/python -m bench.codec [--rounds N]``.  Figures of one machine only compare with each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from timeit import Timer
from typing import Any

from pybroker_protocol import codec
from pybroker_protocol.messages import fetch, heartbeat, metadata, offset_commit, produce
from pybroker_protocol.record_codec import build_batch, decode_records
from pybroker_protocol.records import is_intact, read_batch_header
from pybroker_protocol.schema import Message

Case = tuple[str, Callable[[], object]]

TOPIC_ID = bytes(range(16))
BATCH = build_batch([(b"key", b"v" * 1000)], timestamp_ms=1_700_000_000_000)
TEN_RECORDS = build_batch([(b"key-%d" % i, b"v" * 100) for i in range(10)], timestamp_ms=1_700_000_000_000)


def produce_request(version: int) -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=3, records=BATCH)
    named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "flights"}
    topic = produce.TopicProduceData(partition_data=[partition], **named)
    return produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(version: int) -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(index=3, error_code=0, base_offset=123_456, log_start_offset=0)
    named = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "flights"}
    return produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(partition_responses=[partition], **named)], throttle_time_ms=0
    )


def fetch_request() -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0, current_leader_epoch=5, fetch_offset=123_456, last_fetched_epoch=-1, partition_max_bytes=1 << 20
    )
    topic = fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, isolation_level=0, session_id=7, topics=[topic])


def fetch_response() -> fetch.FetchResponse:
    partition = fetch.PartitionData(
        partition_index=0, error_code=0, high_watermark=123_457, aborted_transactions=None, records=memoryview(BATCH)
    )
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(throttle_time_ms=0, session_id=7, responses=[topic])


def metadata_response() -> metadata.MetadataResponse:
    brokers = [metadata.MetadataResponseBroker(node_id=i, host="localhost", port=9092 + i) for i in range(3)]
    topics = [
        metadata.MetadataResponseTopic(
            error_code=0,
            name=f"topic-{i}",
            topic_id=TOPIC_ID,
            partitions=[
                metadata.MetadataResponsePartition(
                    error_code=0, partition_index=j, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
                )
                for j in range(3)
            ],
        )
        for i in range(10)
    ]
    return metadata.MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def heartbeat_request() -> heartbeat.HeartbeatRequest:
    member_id = "consumer-1-0d2b6c2e-5d8f-4a53-8d66-3f1b8e0c9c11"
    return heartbeat.HeartbeatRequest(group_id="flights-readers", generation_id=3, member_id=member_id)


def offset_commit_request() -> offset_commit.OffsetCommitRequest:
    partitions = [
        offset_commit.OffsetCommitRequestPartition(partition_index=i, committed_offset=1000 + i, committed_metadata="")
        for i in range(3)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name="flights", partitions=partitions)
    return offset_commit.OffsetCommitRequest(group_id="flights-readers", member_id="", topics=[topic])


def decoding(message: Message, version: int) -> Callable[[], object]:
    decode, frame = codec.decoder(type(message), version), memoryview(codec.encode(message, version))
    return lambda: decode(frame, 0)


def encoding(message: Message, version: int) -> Callable[[], object]:
    encode = codec.encoder(type(message), version)

    def run() -> list[Any]:
        parts: list[Any] = []
        encode(message, parts)
        return parts

    return run


def cases() -> Iterator[Case]:
    """What a broker does for one request each: decode it, make a reply, encode that."""
    for version in (9, 12, 13):
        yield f"decode ProduceRequest v{version}, one batch of 1 KB", decoding(produce_request(version), version)
        yield f"make ProduceResponse v{version}", lambda version=version: produce_response(version)  # type: ignore[misc]
        yield f"encode ProduceResponse v{version}", encoding(produce_response(version), version)
    yield "decode FetchRequest v13, one partition", decoding(fetch_request(), 13)
    yield "make FetchResponse", fetch_response
    yield "encode FetchResponse v13, one partition", encoding(fetch_response(), 13)
    yield "decode MetadataRequest v12, all topics", decoding(metadata.MetadataRequest(topics=None), 12)
    yield "encode MetadataResponse v12, 10 topics of 3 partitions", encoding(metadata_response(), 12)
    yield "decode HeartbeatRequest v4", decoding(heartbeat_request(), 4)
    yield "encode HeartbeatResponse v4", encoding(heartbeat.HeartbeatResponse(error_code=0), 4)
    yield "decode OffsetCommitRequest v8, 3 partitions", decoding(offset_commit_request(), 8)
    yield "read a batch header", lambda: read_batch_header(BATCH)
    yield "check a batch of 1 KB", lambda: is_intact(BATCH)
    yield "build a batch of one record", lambda: build_batch([(b"key", b"value")], timestamp_ms=0)
    yield "decode a batch of ten records", lambda: list(decode_records(TEN_RECORDS))


def best_us(run: Callable[[], object], rounds: int) -> float:
    timer = Timer(run)
    runs, _ = timer.autorange()
    runs = max(1, runs // 10)
    return min(timer.repeat(rounds, runs)) / runs * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for name, run in cases():
        print(f"{best_us(run, rounds):8.2f} us  {name}")


if __name__ == "__main__":
    main()
