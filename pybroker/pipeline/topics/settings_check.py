"""Has librdkafka judge a client's settings in the driver, where a query starts: a task says it late, and four times.

Owns the clients that are made for it and reach no broker.  What only a connection shows, such as a wrong password or a
missing file, is not looked at: files of tasks need not be the driver's.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from pybroker.pipeline.topics.client_log import with_client_log

# By these a client would begin to connect, and read its keys.
_OF_A_CONNECTION = frozenset({"bootstrap.servers", "security.protocol"})
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def check_consumer(settings: Mapping[str, str]) -> None:
    """Raise ValueError, in one sentence, where no consumer can be made with the settings."""
    _check(settings, lambda given: Consumer(given).close())


def check_producer(settings: Mapping[str, str]) -> None:
    """Raise ValueError, in one sentence, where no transactional producer can be made with the settings."""
    _check({"transactional.id": "none", **settings}, Producer)


def _check(settings: Mapping[str, str], make: Any) -> None:
    protocol = settings.get("security.protocol", _PROTOCOLS[0])
    if protocol.strip().upper() not in _PROTOCOLS:
        raise ValueError(f"option kafka.security.protocol must be one of {', '.join(_PROTOCOLS)}, is {protocol}")
    judged = {name: value for name, value in settings.items() if name not in _OF_A_CONNECTION}
    try:
        make(with_client_log(judged))
    except KafkaException as error:
        raise ValueError(f"the options kafka.… make no client of librdkafka's: {error.args[0].str()}") from error
