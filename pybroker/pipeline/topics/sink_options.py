"""What the options of a write say.

Owns names and defaults: those of Spark's Kafka connector, and ``transactionGroup``, ``marksTopic``, ``epoch``,
``save`` and ``deterministic``, which are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pybroker.pipeline.topics.librdkafka_settings import CLIENT_PREFIX, ClientSettings, client_settings
from pybroker.pipeline.topics.option_values import OptionValues
from pybroker.pipeline.topics.task_commits import MARKS_TOPIC

# A task that died leaves its transaction open, and committed reads end there, until its successor comes or this ends.
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_DEFAULT_MS = 300_000

OPTIONS = (
    "topic",
    "includeHeaders",
    "transactionGroup",
    "marksTopic",
    "epoch",
    "save",
    "deterministic",
)
# Spark's own.
_WITHOUT_EFFECT = ("path", "checkpointLocation", "queryName")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write.  ``topic``, where set, wins over a column of that name.

    With ``epoch`` a batch is an epoch of ``group``, and is written once however often it is: for ``foreachBatch``.
    ``save`` is the name of a write of it, by which it may be tried again within one run; without it each is new.
    Without ``is_deterministic`` a task that runs again may have other rows than it had committed, which stay.
    """

    client: ClientSettings
    topic: str | None
    group: str | None
    marks_topic: str
    epoch: int | None
    save: str | None
    is_deterministic: bool


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options; raises ValueError, naming the option, for what cannot be meant."""
    values = OptionValues(options)
    values.refuse_unknown((*OPTIONS, *_WITHOUT_EFFECT), (CLIENT_PREFIX,))
    given = client_settings(values.prefixed(CLIENT_PREFIX))
    if given.get("acks", "all").strip() not in ("all", "-1"):
        raise ValueError(f"option {CLIENT_PREFIX}acks must be all, is {given['acks']}: the sink writes in transactions")
    group, epoch = values.text("transactionGroup") or None, values.parsed("epoch", int)
    if epoch is not None and group is None:
        raise ValueError("option epoch is one of a transactionGroup, which is not set")
    save = values.text("save") or None
    if save is not None and epoch is None:
        raise ValueError("option save is one of an epoch, which is not set")
    return SinkOptions(
        client=ClientSettings(
            {
                TRANSACTION_TIMEOUT: str(TRANSACTION_TIMEOUT_DEFAULT_MS),
                "linger.ms": "20",
                # As Java's clients do, so that a key's records stay in one partition whoever writes them.
                "partitioner": "murmur2_random",
                "batch.num.messages": "100000",
                "queue.buffering.max.messages": "500000",
                "queue.buffering.max.kbytes": "65536",
                **given,
            }
        ),
        topic=values.text("topic") or None,
        group=group,
        marks_topic=values.text("marksTopic") or MARKS_TOPIC,
        epoch=epoch,
        save=save,
        is_deterministic=values.flag("deterministic", default=True),
    )
