"""Every message in every version: what is encoded is decoded again, and as a naive interpreter does it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker_protocol import codec
from pybroker_protocol.schema import Message

from .message_classes import case_id, message_classes, messages_and_versions, versions_of
from .naive_codec import naive_decode, naive_encode
from .random_messages import random_message

EXAMPLES = 4


@pytest.mark.parametrize(("cls", "version"), messages_and_versions(), ids=case_id)
@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=True))
def test_round_trip_agrees_with_the_naive_interpreter(cls: type[Message], version: int, random: Random) -> None:
    message = random_message(random, cls, version)
    encoded = codec.encode(message, version)
    assert encoded == naive_encode(message, version)
    assert codec.decode(cls, version, encoded) == message
    assert naive_decode(cls, version, encoded) == message


@pytest.mark.parametrize("cls", message_classes().values(), ids=case_id)
def test_defaults_survive_a_round_trip(cls: type[Message]) -> None:
    for version in versions_of(cls):
        assert codec.decode(cls, version, codec.encode(cls(), version)) == cls()
