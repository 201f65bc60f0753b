"""Which changes the comparator makes to an ordinary request."""

from __future__ import annotations

from comparator.encoding import encode_request
from comparator.variations import LONGEST_STRING, changes, strings_of
from pybroker_protocol.messages import request_class

OFFSET_COMMIT, HEARTBEAT = 8, 12
ORDINARY = {
    "group_id": "g",
    "topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}, {"name": "u"}],
}


def test_every_field_of_the_version_is_changed_and_no_other() -> None:
    places = {change.place for change in changes(request_class(OFFSET_COMMIT), 9, ORDINARY)}
    partition = "topics[0].partitions[0]"
    assert places == {
        "group_id",
        "generation_id_or_member_epoch",
        "member_id",
        "group_instance_id",
        "topics",
        "topics[0].name",
        "topics[0].partitions",
        f"{partition}.partition_index",
        f"{partition}.committed_offset",
        f"{partition}.committed_leader_epoch",
        f"{partition}.committed_metadata",
    }


def test_a_change_is_made_to_a_copy_and_in_its_place_alone() -> None:
    before = repr(ORDINARY)
    for change in changes(request_class(OFFSET_COMMIT), 9, ORDINARY):
        changed = change.made_to(ORDINARY)
        top = str(change.path[0])
        assert top in changed, change.note
        assert changed != ORDINARY, change.note
        assert {**changed, top: 0} == {**ORDINARY, top: 0}
    assert repr(ORDINARY) == before


def test_every_change_can_be_sent() -> None:
    cls = request_class(OFFSET_COMMIT)
    plain = encode_request(cls, 9, ORDINARY)
    for change in changes(cls, 9, ORDINARY):
        assert encode_request(cls, 9, change.made_to(ORDINARY)) != plain, change.note


def test_the_ends_of_types_are_tried() -> None:
    found = {change.note: change.made_to(ORDINARY) for change in changes(request_class(OFFSET_COMMIT), 9, ORDINARY)}
    place = "topics[0].partitions[0].committed_offset"
    for what, value in {"min": -(2**63), "max": 2**63 - 1, "0": 0, "-1": -1}.items():
        assert found[f"{place}: {what}"]["topics"][0]["partitions"][0]["committed_offset"] == value
    assert found["group_id: null"]["group_id"] is None
    assert len(found["group_id: longest"]["group_id"]) == LONGEST_STRING
    assert found["topics: twice"]["topics"] == ORDINARY["topics"] * 2  # type: ignore[operator]


def test_a_string_is_too_long_only_where_its_length_can_say_so() -> None:
    cls = request_class(HEARTBEAT)
    fields = {"group_id": "g"}
    by_version = {
        version: [c.made_to(fields) for c in changes(cls, version, fields) if c.note.startswith("group_id")]
        for version in (3, 4)
    }
    too_long = {"group_id": strings_of("anybody", is_flexible=True)["too long"]}
    assert too_long not in by_version[3]
    assert too_long in by_version[4]


def test_what_one_request_creates_under_a_changed_name_no_other_finds() -> None:
    mine, others = (set(strings_of(of, is_flexible=True).values()) for of in ("describegroups", "joingroup"))
    assert mine & others == {""}
