"""Kafka's coordinators: a row for each, with all that tells one from another.

Owns: the topic that keeps a coordinator's state, and the settings and configs that the topic is created with. Owns the
type of its keys in FindCoordinator, how they are guarded, and its name among the services. Owns no state of a
coordinator (``coordinators/``) and no creation (``auto_topic_creation``).

A further coordinator is a row, a service (``handlers/services``, built by ``lazy_services``) and its handlers.

Counterpart in Kafka: ``common.internals.Topic``, ``FindCoordinatorRequest.CoordinatorType``,
``AutoTopicCreationManager.creatableTopic`` and the topic configs of each coordinator.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pybroker.config.broker import BrokerConfig
from pybroker_protocol.errors import ErrorCode


class CoordinatorType(NamedTuple):
    """One coordinator.

    ``name`` is the service's among ``Services``, and the word for what it coordinates.  ``settings`` are the
    first words of the settings of its topic.  ``resource`` is a name of ``security.acl_bindings.Resource``, which a
    start without ACLs does not import.
    """

    name: str
    key_type: int
    topic: str
    settings: str
    configs: tuple[tuple[str, str], ...]
    resource: str
    unauthorized: ErrorCode

    @property
    def factor_setting(self) -> str:
        """The setting that says how many replicas the topic begins with."""
        return f"{self.settings}.replication.factor"

    def replication_factor(self, config: BrokerConfig) -> int:
        """How many replicas the topic begins with, by default one of a broker that is alone.

        Among several Kafka's default holds, however few have come yet: what the topic begins with it keeps for good.
        """
        is_alone = config["pybroker.metadata"] is None
        return 1 if is_alone and not config.is_set(self.factor_setting) else config.get_int(self.factor_setting)

    def partition_count(self, config: BrokerConfig) -> int:
        """How many partitions the topic begins with."""
        return config.get_int(f"{self.settings}.num.partitions")


GROUPS: Final = CoordinatorType(
    "groups",
    0,
    "__consumer_offsets",
    "offsets.topic",
    (("cleanup.policy", "compact"), ("compression.type", "producer")),
    "GROUP",
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
TRANSACTIONS: Final = CoordinatorType(
    "transactions",
    1,
    "__transaction_state",
    "transaction.state.log",
    (
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("unclean.leader.election.enable", "false"),
    ),
    "TRANSACTIONAL_ID",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
COORDINATORS: Final = (GROUPS, TRANSACTIONS)

# Kafka's topics of its own: those of coordinators, and that of share groups, which nothing here coordinates.
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
COORDINATOR_OF_TOPIC: Final = {each.topic: each for each in COORDINATORS}
INTERNAL_TOPICS: Final = frozenset((*COORDINATOR_OF_TOPIC, SHARE_GROUP_STATE_TOPIC))
