"""``pybroker groups`` over groups whose members are no consumers, and whose members' metadata is not decoded."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from harness.waiting import wait_until
from hypothesis import given
from hypothesis import strategies as st

from pybroker.cli.records.record_decoders import consumer_protocol
from pybroker.cli.requests.group_descriptions import assigned_partitions
from pybroker.testing import Broker
from pybroker_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from pybroker_protocol.messages.find_coordinator import FindCoordinatorRequest
from pybroker_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pybroker_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pybroker_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.wire_client import WireClient
from tests.cli.command import CommandLine

WORKER_URL = b"http://127.0.0.1:8083/"
# What a worker of Kafka Connect tells the others: a version, its address, how far it is.
OF_A_WORKER = b"\x00\x02" + len(WORKER_URL).to_bytes(2, "big") + WORKER_URL + bytes(8)
# A version of the consumer's protocol, and an array that is longer than what follows.
CUT_OFF = b"\x00\x01\x00\x00\x00\x07\x00"
FOREIGN = {
    "connect": ("connect", OF_A_WORKER),
    "schema registry": ("sr", b'{"host":"127.0.0.1","port":8081}'),
    "consumers of another kind": ("consumer", CUT_OFF),
    "consumers without a word": ("consumer", b""),
    "nothing at all": ("", b"\xff" * 40),
}


class Foreign:
    """A group with one member, of the given protocol type, and an offset that it committed before."""

    def __init__(self, broker: Broker, name: str, kind: str) -> None:
        self.name, (protocol_type, said) = name, FOREIGN[kind]
        self._client = WireClient((broker.host, broker.port))
        broker.create_topic(name, partitions=2)
        self._client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)
        wait_until(self._commit, "the coordinator takes commits")
        protocols = [JoinGroupRequestProtocol(name="sessioned", metadata=said)]
        joined = self._client.ask(
            JoinGroupRequest(
                group_id=name, session_timeout_ms=600_000, rebalance_timeout_ms=600_000, member_id="",
                protocol_type=protocol_type or "strange", protocols=protocols,
            ), 3,
        )  # fmt: skip
        assert joined.error_code == 0
        synced = self._client.ask(
            SyncGroupRequest(
                group_id=name, generation_id=joined.generation_id, member_id=joined.member_id,
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=said)],
            ), 2,
        )  # fmt: skip
        assert synced.error_code == 0

    def _commit(self) -> bool:
        partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=0, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.name, member_id="", topics=[OffsetCommitRequestTopic(name=self.name, partitions=[partition])]
        )
        (topic,) = self._client.ask(request, 3).topics
        return bool(topic.partitions[0].error_code == 0)

    def close(self) -> None:
        self._client.close()


@pytest.fixture(params=FOREIGN)
def group(pybroker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.param.replace(" ", "-")
    foreign = Foreign(pybroker, name, request.param)
    yield name
    foreign.close()


def test_each_command_shows_what_there_is_or_says_in_a_line_why_not(pybroker: Broker, group: str) -> None:
    cli = CommandLine(pybroker.bootstrap)
    (listed,) = (each for each in cli.json("groups", "list") if each["group"] == group)
    assert listed["state"] == "Stable"
    (described,) = cli.json("groups", "describe", group)
    assert described["protocol_type"] == listed["protocol_type"]
    assert [member["partitions"] for member in described["members"]] == [[]]
    assert [offset["partition"] for offset in described["offsets"]] == [1]
    assert group in cli.ok("groups", "describe", "--members", group).decode()
    refused = {
        ("reset-offsets", group, "--topic", group, "--to-earliest"): "offsets can only be reset",
        ("delete", group): "NON_EMPTY_GROUP: ",
    }
    for arguments, said in refused.items():
        finished = cli.run("groups", *arguments)
        assert finished.returncode == 1
        assert said in finished.stderr.decode()
        assert len(finished.stderr.decode().splitlines()) == 1
    deleted = cli.run("groups", "delete-offsets", group, "--topic", f"{group}:1")
    assert "Traceback" not in deleted.stderr.decode()


@given(st.sampled_from(["consumer", "connect", ""]), st.binary(max_size=60))
def test_no_bytes_of_an_assignment_are_too_strange(protocol_type: str, assignment: bytes) -> None:
    assigned_partitions(protocol_type, assignment)
    for name in ("ConsumerProtocolAssignment", "ConsumerProtocolSubscription"):
        consumer_protocol(name, base64.b64encode(assignment).decode())


@given(st.integers(0, 9))
def test_an_assignment_of_any_version_has_its_partitions(version: int) -> None:
    from pybroker_protocol import codec

    topic = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=[1, 0])
    body = codec.encode(ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=None), 0)
    assert assigned_partitions("consumer", version.to_bytes(2, "big") + body + b"later") == [("t", 0), ("t", 1)]
