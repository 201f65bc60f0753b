"""The vocabulary of describing and altering: resource types, sources, operations, answers.

Owns: Kafka's numbers and the plain values that the config service takes and gives, apart from any wire version.

Counterparts in Kafka: ``ConfigResource.Type``, ``DescribeConfigsResponse.ConfigSource``, ``AlterConfigOp.OpType``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pybroker_protocol.errors import readable

# ConfigResource.Type.
TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

# While eligible leader replicas are tracked (KIP-966) it is set for all brokers together, and for none alone.
CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"

# ConfigSource: where a value comes from.
TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8

# AlterConfigOp.OpType.
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
OPERATION_NAMES: Final = ("SET", "DELETE", "APPEND", "SUBTRACT")


class Synonym(NamedTuple):
    """One layer's value of a setting, under the name it has there; the value of a sensitive setting is None."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One described setting; ``type`` has DescribeConfigs' numbers, ``synonyms`` start with the layer that counts."""

    name: str
    value: str | None
    source: int
    type: int = 0
    is_sensitive: bool = False
    read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()
    documentation: str | None = None


class Description(NamedTuple):
    """The answer for one resource: an error, or its settings."""

    error_code: int
    error_message: str | None
    entries: tuple[ConfigEntry, ...] = ()


class AlterConfigOp(NamedTuple):
    """One change of one setting: ``kind`` is SET, DELETE, APPEND or SUBTRACT."""

    name: str
    value: str | None
    kind: int = SET


class ConfigFailure(Exception):
    """One resource's request cannot be done: Kafka's error code and what the client reads."""

    def __init__(self, error_code: int, message: str | None) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = None if message is None else readable(message)


class Alteration(NamedTuple):
    """The changes of one resource.

    With ``replace`` (AlterConfigs, key 33) every operation is SET and overrides that are not named go away.
    ``refusal`` is set where the caller knows already that it cannot be (authorization, a bad topic name).
    ``is_forwarded``: another broker has forwarded it, and takes what it says of that broker alone.
    """

    resource_type: int
    resource_name: str
    operations: tuple[AlterConfigOp, ...]
    replace: bool = False
    refusal: ConfigFailure | None = None
    is_forwarded: bool = False


class ConfigChange(NamedTuple):
    """What the store is asked to write for one resource: new values, None to remove an override.

    With ``replace`` the overrides that ``updates`` does not name go away too.
    """

    resource_type: int
    resource_name: str
    updates: Mapping[str, str | None]
    replace: bool = False


class Outcome(NamedTuple):
    """The answer for one altered resource."""

    error_code: int
    error_message: str | None = None
