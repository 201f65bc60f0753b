"""What no client may do with a mirrored topic, in each of its states and before whichever authorizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybroker.cluster.image.cluster_image import ImageBuilder
from pybroker.cluster.image.links import STATES, WRITABLE, MirroredTopic
from pybroker.cluster.image.metadata_cache import MetadataCache
from pybroker.handlers.acl_filters import keeps_acls
from pybroker.handlers.context import RequestContext
from pybroker.handlers.read_only_topics import ReadOnlyTopics
from pybroker.security.acl_bindings import AclOperation, Resource

WRITES = {AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
DELETE_TOPICS, DELETE_RECORDS = 20, 21


class Inner:
    """An authorizer that allows, or denies, everything, and remembers what it was asked."""

    keeps_acls = True

    def __init__(self, allows: bool) -> None:
        self.answer = allows
        self.asked: list[tuple[int, int, str]] = []

    def allows(self, ctx: Any, operation: int, resource_type: int, name: str, *, log_if_denied: bool = True) -> bool:
        self.asked.append((operation, resource_type, name))
        return self.answer

    def allows_by_resource_type(self, ctx: Any, operation: int, resource_type: int) -> bool:
        return self.answer


def topics_in(state: str, inner: Inner | None = None) -> ReadOnlyTopics:
    builder = ImageBuilder(MetadataCache().image)
    builder.put_mirror("orders", MirroredTopic("west", "orders", state=state))
    return ReadOnlyTopics(MetadataCache(builder.build(1)[0]), cast(Any, inner))


def allows(
    topics: ReadOnlyTopics,
    operation: int,
    name: str = "orders",
    resource: int = Resource.TOPIC,
    api_key: int = DELETE_RECORDS,
) -> bool:
    ctx = RequestContext()
    ctx.api_key = api_key
    return topics.allows(ctx, operation, resource, name)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("operation", list(AclOperation))
def test_writes_are_refused_while_a_topic_is_not_promoted(state: str, operation: AclOperation) -> None:
    is_refused = operation in WRITES and state not in WRITABLE
    assert allows(topics_in(state), operation) != is_refused


@pytest.mark.parametrize("state", STATES)
def test_a_topic_as_a_whole_may_be_deleted(state: str) -> None:
    assert allows(topics_in(state), AclOperation.DELETE, api_key=DELETE_TOPICS)


@pytest.mark.parametrize("state", STATES)
def test_other_topics_and_other_resources_of_its_name_are_the_authorizers_matter(state: str) -> None:
    for answer in (True, False):
        topics = topics_in(state, Inner(answer))
        assert allows(topics, AclOperation.WRITE, "payments") == answer
        assert allows(topics, AclOperation.DELETE, resource=Resource.GROUP) == answer
        assert allows(topics, AclOperation.READ) == answer
        assert topics.allows_by_resource_type(RequestContext(), AclOperation.WRITE, Resource.TOPIC) == answer


def test_a_write_to_a_mirrored_topic_is_refused_before_the_authorizer_is_asked() -> None:
    inner = Inner(True)
    assert not allows(topics_in("mirroring", inner), AclOperation.WRITE)
    assert not inner.asked


@pytest.mark.parametrize(("inner", "expected"), [(None, False), (Inner(True), True)])
def test_there_are_acls_only_where_an_authorizer_goes_by_them(inner: Inner | None, expected: bool) -> None:
    ctx = RequestContext()
    ctx.services = cast(Any, SimpleNamespace(authorizer=topics_in("mirroring", inner)))
    assert keeps_acls(ctx) == expected
