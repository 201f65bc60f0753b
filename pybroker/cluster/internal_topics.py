"""How a topic comes into being that is needed and missing: by auto-creation, or as one of Kafka's own.

Counterpart in Kafka: ``AutoTopicCreationManager.creatableTopic``, ``GroupCoordinatorService.groupMetadataTopicConfigs``
and ``TransactionStateManager.transactionTopicConfigs``.
"""

from __future__ import annotations

from pybroker.cluster.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from pybroker.cluster.operations import NewTopic
from pybroker.config.broker import INTERNAL_TOPIC_FACTORS, BrokerConfig

# Which setting says how many replicas a topic begins with.
FACTOR_SETTINGS = dict(zip((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC), INTERNAL_TOPIC_FACTORS, strict=True))


def creatable_topic(name: str, config: BrokerConfig) -> NewTopic:
    """The topic to create under ``name``; what is not one of Kafka's own gets the broker's defaults."""
    if name == GROUP_METADATA_TOPIC:
        return _consumer_offsets(config)
    if name == TRANSACTION_STATE_TOPIC:
        return _transaction_state(config)
    return NewTopic(name)


def _consumer_offsets(config: BrokerConfig) -> NewTopic:
    return NewTopic(
        GROUP_METADATA_TOPIC,
        config.get_int("offsets.topic.num.partitions"),
        config.replication_factor_of_internal_topic(FACTOR_SETTINGS[GROUP_METADATA_TOPIC]),
        (),
        (
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.get_int("offsets.topic.segment.bytes"))),
        ),
    )


def _transaction_state(config: BrokerConfig) -> NewTopic:
    replication_factor = config.replication_factor_of_internal_topic(FACTOR_SETTINGS[TRANSACTION_STATE_TOPIC])
    min_isr = min(config.get_int("transaction.state.log.min.isr"), replication_factor)
    return NewTopic(
        TRANSACTION_STATE_TOPIC,
        config.get_int("transaction.state.log.num.partitions"),
        replication_factor,
        (),
        (
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(min_isr)),
            ("segment.bytes", str(config.get_int("transaction.state.log.segment.bytes"))),
            ("unclean.leader.election.enable", "false"),
        ),
    )
