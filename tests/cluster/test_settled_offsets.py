"""What coordinators have done for groups' offsets in mirrored topics, as the controller keeps it."""

from __future__ import annotations

import pytest

from pybroker.cluster.decisions.mirrored_topics import moved, take_reports
from pybroker.cluster.decisions.settled_offsets import is_settled
from pybroker.cluster.image.cluster_image import ImageBuilder, PartitionImage, TopicImage
from pybroker.cluster.image.coordinator_table import GROUPS
from pybroker.cluster.image.link_states import CARRIED, FAIL_OVER, LOWERED, MIRRORING, PROMOTED, MirrorReport
from tests.cluster.test_mirrored_topics import in_state, mirror


def of_groups(builder: ImageBuilder, *states: tuple[int, int]) -> None:
    """The cluster has a topic of groups' offsets, with these leaders and leader epochs."""
    partitions = tuple(PartitionImage((1, 2), (1, 2), leader, epoch) for leader, epoch in states)
    builder.put_topic(TopicImage(GROUPS.topic, bytes(15) + b"\x63", partitions, True))


def settle(
    builder: ImageBuilder, kind: int, reason: str, *, broker_id: int = 1, first_epoch: int | None = None
) -> None:
    topic_id = builder.view().topics_by_name["orders"].topic_id
    epoch = mirror(builder).writable_since if first_epoch is None else first_epoch
    take_reports(builder, broker_id, [MirrorReport(topic_id, 0, epoch, kind, reason)])


def test_what_coordinators_have_done_is_kept_for_the_partitions_that_they_lead() -> None:
    builder = in_state(PROMOTED, first_epochs=(70_000, 70_001))
    of_groups(builder, (1, 5), (2, 6), (1, 7))
    settle(builder, CARRIED, "0:5 1:6 2:7")
    settle(builder, LOWERED, "2:7")
    assert (mirror(builder).carried, mirror(builder).lowered) == (0b101, 0b100)
    settle(builder, CARRIED, "1:6", broker_id=2)
    assert is_settled(builder.view(), mirror(builder).carried)
    assert not is_settled(builder.view(), mirror(builder).lowered)


@pytest.mark.parametrize("reason", ["0:4", "0:6", "1:5", "9:5", "", "0", "0:", ":5", "-1:5", "0:5x", "x", "²:5"])
def test_a_word_that_is_out_of_date_or_none_settles_nothing(reason: str) -> None:
    builder = in_state(PROMOTED, first_epochs=(70_000, 70_001))
    of_groups(builder, (1, 5), (2, 5))
    settle(builder, CARRIED, reason)
    assert mirror(builder).carried == 0


def test_a_word_of_before_a_topic_took_writes_settles_nothing() -> None:
    builder = in_state(PROMOTED, first_epochs=(70_000, 70_001))
    of_groups(builder, (1, 5))
    settle(builder, LOWERED, "0:5", first_epoch=-1)
    assert mirror(builder).lowered == 0
    settle(builder, LOWERED, "0:5")
    assert mirror(builder).lowered == 1


def test_without_groups_there_is_nothing_to_settle() -> None:
    builder = in_state(PROMOTED, first_epochs=(70_000, 70_001))
    settle(builder, LOWERED, "0:5")
    assert mirror(builder).lowered == 0
    assert is_settled(builder.view(), 0)


def test_what_was_settled_of_a_cut_is_to_be_done_again_as_a_topic_begins_to_take_writes() -> None:
    builder = in_state(MIRRORING, partings=((0, 50, 30),), lowered=0b1)
    of_groups(builder, (1, 5), (2, 6))
    moved(builder, "orders", FAIL_OVER)
    assert (mirror(builder).lowered, mirror(builder).partings) == (0, ((0, 50, 30),))
