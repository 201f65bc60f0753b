"""What the comparator takes for equal, for different, and for meant."""

from __future__ import annotations

from harness.batches import Batch, batch, end_marker

from comparator.compare import Result, stale
from comparator.diff import ABSENT, Difference, differences
from comparator.differences import Meant
from comparator.normalize import ClusterNormalizer, Normalizer, split_batches

TOPIC_ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16


def normalized(*trees: object) -> list[object]:
    normalizer = Normalizer()
    return [normalizer.normalize(tree) for tree in trees]


def test_the_same_id_becomes_the_same_symbol() -> None:
    first, second, third = normalized({"topic_id": TOPIC_ID}, {"topic_id": OTHER_ID}, {"topic_id": TOPIC_ID})
    assert first == third != second


def test_values_that_mean_none_are_kept() -> None:
    tree = {"topic_id": bytes(16), "leader_id": -1, "session_id": 0, "error_message": None, "host": ""}
    assert normalized(tree) == [tree]


def test_zero_and_false_are_told_apart() -> None:
    assert list(differences({"value": 0}, {"value": False})) == [Difference("value", 0, False)]


def test_random_part_of_a_member_id_becomes_a_symbol() -> None:
    (tree,) = normalized({"member_id": "client-2e0dc3a5-55a4-45a8-a1c8-3f1a1a1f5c2a"})
    assert tree == {"member_id": "client-<uuid 1>"}


def test_siblings_are_matched_by_name_in_any_order() -> None:
    kafka = [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 3}]
    assert not list(differences(kafka, kafka[::-1]))


def test_active_producers_are_listed_in_any_order() -> None:
    made = [{"producer_id": 7}, {"producer_id": 1001}]
    active = [{"producer_id": 7, "producer_epoch": 0}, {"producer_id": 1001, "producer_epoch": 2}]
    _, *rest = normalized(made, {"active_producers": active}, {"active_producers": active[::-1]})
    assert rest[0] == rest[1]


def test_the_order_of_aborted_transactions_counts() -> None:
    made = [{"producer_id": 7}, {"producer_id": 1001}]
    _, *rest = normalized(made, {"aborted_transactions": made}, {"aborted_transactions": made[::-1]})
    assert rest[0] != rest[1]


def test_of_a_marker_in_a_cluster_only_the_epoch_of_its_coordinator_is_anybodys() -> None:
    normalizer = ClusterNormalizer()
    first, later, other = (
        normalizer.normalize(end_marker(7, 0, commit, epoch), "records")
        for commit, epoch in ((True, 0), (True, 9), (False, 0))
    )
    assert first == later != other
    assert normalizer.normalize({"coordinator_epoch": 0}) == normalizer.normalize({"coordinator_epoch": 9})
    assert normalizer.normalize({"coordinator_epoch": -1}) == {"coordinator_epoch": -1}


def test_a_missing_sibling_is_a_difference() -> None:
    kafka, ours = [{"name": "a"}, {"name": "b"}], [{"name": "a"}]
    assert list(differences({"topics": kafka}, {"topics": ours})) == [
        Difference("topics[name=b]", {"name": "b"}, ABSENT)
    ]


def test_siblings_without_names_are_matched_by_position() -> None:
    assert list(differences({"isr": [1, 2]}, {"isr": [1, 3]})) == [Difference("isr[1]", 2, 3)]


def test_batches_are_compared_field_by_field() -> None:
    kafka, ours = normalized({"records": batch(b"a")}, {"records": batch(b"a", partition_leader_epoch=3)})
    assert [difference.path for difference in differences(kafka, ours)] == ["records[0].partition_leader_epoch"]


def test_bytes_that_are_no_batch_are_kept_whole() -> None:
    broken = Batch(batch_length=-1).encode()
    (header, body), *rest = split_batches(broken)
    assert (set(header), body, rest) == ({-1}, broken, [])


def test_patterns_take_brackets_as_they_are() -> None:
    meant = Meant("produce.*", "Produce v9 (*)", "topics[name=*].error_code", "0", "1", "why")
    difference = Difference("topics[name=a].error_code", 0, 1)
    assert meant.covers("produce.broken", "Produce v9 (bad crc)", difference)
    assert not meant.covers("fetch.broken", "Produce v9 (bad crc)", difference)


def test_an_entry_that_covers_nothing_is_stale() -> None:
    entry = Meant("*", "*", "*", "*", "*", "why")
    assert stale([Result("produce.broken")], [entry], []) == [entry]


def test_what_is_said_of_a_success_is_compared_word_for_word() -> None:
    said = Normalizer().normalize({"error_code": 0, "error_message": "NONE"})
    assert said == {"error_code": 0, "error_message": "NONE"}
    assert Normalizer().normalize({"error_code": 3, "error_message": "why"})["error_message"] == "<text>"
