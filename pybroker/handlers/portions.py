"""Long arrays by portions, for services that take what they are asked as one operation.

Owns: cutting an array, or topics with their partitions, into portions that a service is done with in milliseconds, and
putting what is answered together.  A handler asks for one portion after another and yields between them
(``context.Steps``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from pybroker import limits
from pybroker.coordinators.gather import Gather
from pybroker.handlers.context import Parked, RequestContext, Steps
from pybroker_protocol.errors import ErrorCode

# Resources of a request that the controller decides as a whole: Kafka's makes no more than 10,000 records at once.
RESOURCES_PER_REQUEST_MAX = 10_000

T = TypeVar("T")
Key = TypeVar("Key")
Topic = TypeVar("Topic", bound=Any)


def portions(elements: Sequence[T], size: int = limits.ELEMENTS_AT_ONCE) -> Iterable[Sequence[T]]:
    """The elements in order, at most ``size`` of them at a time; of few the one portion is ``elements`` itself."""
    if len(elements) <= size:
        return (elements,) if elements else ()
    return (elements[start : start + size] for start in range(0, len(elements), size))


def at_once(steps: Steps) -> Any:
    """Begin a handler's steps: what they come to, or a ``Parked`` of it, or where they pause the steps that are left.

    Steps that pause only between portions (``if portion is not elements: yield``) are over where there is one portion,
    and cost what a plain function does.  Those that wait before they pause go on without a pause when that is there.
    """
    try:
        waits_for = next(steps)
    except StopIteration as end:
        return end.value
    return steps if waits_for is None else _goes_on(waits_for, steps)


def _goes_on(waits_for: Parked, steps: Steps) -> Parked:
    """What the steps come to once what they wait for is there."""
    parked = Parked()

    def go_on(value: Any) -> None:
        try:
            while True:
                steps.send(value)
                value = None
        except StopIteration as end:
            parked.complete(end.value)

    def abandon() -> None:
        waits_for.abandon()
        steps.close()

    parked.on_abandon = abandon
    waits_for.subscribe(go_on)
    return parked


def asked_in_portions(elements: Sequence[T], ask: Callable[[Sequence[T], Callable[[Any], None]], object]) -> Steps:
    """Call ``ask(portion, done)`` for each portion; the answers in order, one for each, once all are there."""
    asked = list(portions(elements))
    answers = Parked()
    gather = Gather(len(asked), answers.complete)
    for position, portion in enumerate(asked):
        ask(portion, gather.slot(position))
        yield
    return (yield answers)


def merge_topics(merged: dict[Key, Topic], topics: Iterable[Topic], key: Callable[[Topic], Key]) -> None:
    """Add to ``merged`` one entry per topic, with its partitions in the order in which they come."""
    for topic in topics:
        before = merged.setdefault(key(topic), topic)
        if before is not topic:
            before.partitions.extend(topic.partitions)


def answered_in_portions(
    ctx: RequestContext, request: Any, answer: Callable[[RequestContext, Any], Any], key: Callable[[Any], Any]
) -> Any:
    """Have a request answered portion by portion of its topics, and its topics put together, one entry per ``key``.

    ``answer`` takes a request of the same kind and gives back a response, or a ``Parked`` that comes to one; what it
    says of a short request is the answer.
    """
    return answer(ctx, request) if is_short(request.topics, "partitions") else _merged(ctx, request, answer, key)


def _merged(
    ctx: RequestContext, request: Any, answer: Callable[[RequestContext, Any], Any], key: Callable[[Any], Any]
) -> Steps:
    merged: dict[Any, Any] = {}
    for portion in portions_of_topics(request.topics, "partitions"):
        part = copy(request)
        part.topics = portion
        response = answer(ctx, part)
        if isinstance(response, Parked):
            response = yield response
        merge_topics(merged, response.topics, key)
        yield
    response.topics = list(merged.values())
    return response


def visible(elements: Iterable[Any], may_see: Callable[[Any], bool]) -> Steps:
    """Those of very many elements that the client may see."""
    seen = []
    for element in elements:
        if may_see(element):
            seen.append(element)
        yield
    return seen


def too_many(resources: Sequence[Any]) -> tuple[int, str] | None:
    """What a request of more resources than the controller decides at once is refused with, for each of them."""
    if len(resources) <= RESOURCES_PER_REQUEST_MAX:
        return None
    return ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."


def is_short(topics: Sequence[Any], partitions: str, size: int = limits.PARTITIONS_AT_ONCE) -> bool:
    """Whether topics, and the lists of them in the attribute ``partitions``, are one portion."""
    if not topics:
        return True
    if len(topics) == 1:
        return len(getattr(topics[0], partitions)) <= size
    if len(topics) > size:
        return False
    return sum(len(getattr(topic, partitions)) for topic in topics) <= size


def portions_of_topics(
    topics: Sequence[T], partitions: str, size: int = limits.PARTITIONS_AT_ONCE
) -> Iterable[Sequence[T]]:
    """The topics in order, ``size`` topics and partitions at a time; a topic that is longer is cut.

    Of few the one portion is ``topics`` itself.
    """
    if is_short(topics, partitions, size):
        return (topics,) if topics else ()
    return _cut_topics(topics, partitions, size)


def _cut_topics(topics: Sequence[T], partitions: str, size: int) -> Iterator[list[T]]:
    portion: list[T] = []
    left = size
    for topic in topics:
        rest = getattr(topic, partitions)
        start = 0
        while True:
            piece = topic
            if start or len(rest) > left:
                piece = copy(topic)
                setattr(piece, partitions, rest[start : start + left])
            portion.append(piece)
            taken = min(len(rest) - start, left)
            start += taken
            left -= taken + 1
            if left <= 0:
                yield portion
                portion = []
                left = size
            if start >= len(rest):
                break
    if portion:
        yield portion
