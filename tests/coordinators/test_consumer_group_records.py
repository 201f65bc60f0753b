"""The records of consumer groups (KIP-848): what is written is what is declared, and is read back as it was."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.coordinators.group.consumer import consumer_records as records
from pybroker.coordinators.group.consumer.consumer_member import ClassicFacet, ConsumerMember, MemberState
from pybroker.coordinators.result import Record
from pybroker_protocol import codec
from pybroker_protocol.messages import records_consumer_group as declared

IDS = st.binary(min_size=16, max_size=16)
EPOCHS = st.integers(0, 2**31 - 1)
NAMES = st.text(min_size=1, max_size=20)
ASSIGNED = st.dictionaries(IDS, st.dictionaries(st.integers(0, 99), EPOCHS, min_size=1, max_size=5), max_size=3)
MEMBERS = st.builds(
    ConsumerMember,
    member_id=NAMES,
    member_epoch=st.integers(-2, 2**31 - 1),
    previous_member_epoch=st.integers(-1, 2**31 - 1),
    instance_id=st.none() | NAMES,
    rack_id=st.none() | NAMES,
    rebalance_timeout_ms=EPOCHS,
    client_id=NAMES,
    client_host=NAMES,
    subscribed_topic_names=st.frozensets(NAMES, max_size=4),
    subscribed_topic_regex=NAMES | st.just(""),
    server_assignor=st.none() | NAMES,
    state=st.sampled_from([MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS]),
    assigned=ASSIGNED,
    pending_revocation=ASSIGNED,
    classic=st.none()
    | st.builds(ClassicFacet, EPOCHS, st.lists(st.tuples(NAMES, st.binary(max_size=9)), max_size=2).map(tuple)),
)


def value_of(record: Record) -> bytes:
    assert record[1] is not None
    return record[1]


@given(MEMBERS)
def test_two_records_bring_a_member_back(member: ConsumerMember) -> None:
    metadata = value_of(records.member_metadata_record("g", member))
    current = value_of(records.current_assignment_record("g", member))
    empty = ConsumerMember(member.member_id)
    assert records.read_current_assignment(current, records.read_member_metadata(metadata, empty)) == member


@given(NAMES, MEMBERS)
def test_keys_are_those_that_are_declared(group: str, member: ConsumerMember) -> None:
    second = member.member_id
    of_member = {"member_id": second}
    for record, key_class, fields in (
        (records.group_metadata_record(group, 1, 2), declared.ConsumerGroupMetadataKey, {}),
        (records.target_metadata_record(group, 1, 2), declared.ConsumerGroupTargetAssignmentMetadataKey, {}),
        (records.member_metadata_record(group, member), declared.ConsumerGroupMemberMetadataKey, of_member),
        (records.target_member_record(group, second, {}), declared.ConsumerGroupTargetAssignmentMemberKey, of_member),
        (
            records.current_assignment_record(group, member),
            declared.ConsumerGroupCurrentMemberAssignmentKey,
            of_member,
        ),
        (
            records.regular_expression_record(group, second, records.ResolvedRegex(frozenset(), 1, 2)),
            declared.ConsumerGroupRegularExpressionKey,
            {"regular_expression": second},
        ),
    ):
        (kind,) = struct.unpack_from(">h", record[0])
        assert kind in records.KINDS
        decoded = codec.decode(key_class, 0, memoryview(record[0])[2:])
        assert decoded == key_class(group_id=group, **fields)
        assert records.second_of_key(record[0]) == "".join(fields.values())
        assert records.tombstone(kind, group, *fields.values()) == (record[0], None)


@given(st.dictionaries(IDS, st.frozensets(st.integers(0, 99), min_size=1, max_size=5), max_size=3))
def test_targets_are_read_back(target: dict[bytes, frozenset[int]]) -> None:
    assert records.read_target_member(value_of(records.target_member_record("g", "m", target))) == target


def test_partitions_without_epochs_have_the_members() -> None:
    """As brokers before Kafka 4.3 wrote them."""
    topics = [declared.TopicPartitions(topic_id=bytes(16), partitions=[1, 2], assignment_epochs=[])]
    value = declared.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7, previous_member_epoch=6, state=0, assigned_partitions=topics, partitions_pending_revocation=[]
    )
    member = records.read_current_assignment(b"\x00\x00" + codec.encode(value, 0), ConsumerMember("m"))
    assert member.assigned == {bytes(16): {1: 7, 2: 7}}


@pytest.mark.parametrize("state", [3, 9, -1])
def test_state_of_a_later_version_is_unknown(state: int) -> None:
    value = declared.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7,
        previous_member_epoch=6,
        state=state,
        assigned_partitions=[],
        partitions_pending_revocation=[],
    )
    member = records.read_current_assignment(b"\x00\x00" + codec.encode(value, 0), ConsumerMember("m"))
    assert member.state is MemberState.UNKNOWN
