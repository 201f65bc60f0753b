"""What several settings must be together, and how far one may change at once.

Owns: the rules, as a table.  Owns no rule for one value alone, which is its row's validator (``broker_settings``), nor
who asks: ``broker`` at start and for what a store holds, ``alter`` for changes.

Kept are Kafka's rules for settings that are read here, and those for groups of kinds that are not served yet, because
they are the same ones.  Left out is what guards a thing that is not here (replica fetchers, SASL).

Invariants: pure functions of parsed values by Kafka's names; texts are Kafka's; a rule reads the settings it names.

Counterparts in Kafka: ``KafkaConfig.validateValues``, ``GroupCoordinatorConfig``, ``ShareGroupConfig.validate``;
for changes ``validateReconfiguration`` of ``DynamicThreadPool``, ``DynamicRemoteLogConfig`` and ``LogCleaner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from os.path import abspath
from typing import Any, Final, NamedTuple, Protocol

from pybroker.config.connections import OVERRIDES, parse_overrides
from pybroker.config.group_settings import CONSUMER_ASSIGNORS
from pybroker.config.schema import ConfigError

_MEBIBYTE: Final = 1 << 20


class Values(Protocol):
    """Parsed values by Kafka's names: a dict, or a ``BrokerConfig``."""

    def __getitem__(self, name: str, /) -> Any: ...


class Rule(NamedTuple):
    """Among the settings ``names`` holds ``holds(values)``; if not, ``message`` is what the operator reads.

    ``causes`` gives what stands behind the message, where it names some.
    """

    names: tuple[str, ...]
    holds: Callable[[Values], bool]
    message: str
    causes: Callable[[Values], Iterable[str]] | None = None

    def says(self, values: Values) -> str:
        """The message for values among which the rule does not hold."""
        return self.message if self.causes is None else self.message + ",".join(self.causes(values))


def _at_most(low: str, high: str, message: str = "") -> Rule:
    message = message or f"{high} must be greater than or equal to {low}"
    return Rule((low, high), lambda values: values[low] <= values[high], message)


def _between(name: str, low: str, high: str) -> tuple[Rule, ...]:
    """``low <= name <= high``, in the words of the group coordinator."""
    return (
        _at_most(low, high),
        _at_most(low, name),
        _at_most(name, high, f"{name} must be less than or equal to {high}"),
    )


def _names_each_once(names: Sequence[str]) -> bool:
    assignors = [CONSUMER_ASSIGNORS.get(name, name) for name in names]
    return len(set(assignors)) == len(assignors)


def _of_groups(kind: str) -> Iterator[Rule]:
    """The rules that consumer, share and streams groups have in common."""
    for rest in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        yield from _between(f"group.{kind}.{rest}", f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")
    heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
    yield Rule(
        (heartbeat, session),
        lambda values: values[heartbeat] < values[session],
        f"{heartbeat} must be less than {session}",
    )


def _of_shares() -> Iterator[Rule]:
    for rest in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
        name, high = f"group.share.{rest}", f"group.share.max.{rest}"
        yield _at_most(f"group.share.min.{rest}", name)
        yield _at_most(name, high)
    yield _at_most("group.share.max.size", "group.share.max.share.sessions")


def _first_set(values: Values, *names: str) -> Any:
    """The value of the first of these settings that has one; the last always has."""
    return next(values[name] for name in names if values[name] is not None)


def _inter_broker_listener_is_advertised(values: Values) -> bool:
    """Only where it is set: Kafka's default asks for a listener called PLAINTEXT, which is not needed here."""
    name = values["inter.broker.listener.name"]
    if name is None:
        return True
    advertised = values["advertised.listeners"] or values["listeners"]
    names = {endpoint.partition("://")[0].strip().upper() for endpoint in advertised}
    return name.upper() in names - {controller.upper() for controller in values["controller.listener.names"]}


def absolute_paths(paths: Iterable[str]) -> frozenset[str]:
    """Paths of log dirs as clients see them: a relative one means a place, not a spelling (KAFKA-20901)."""
    return frozenset(abspath(path) for path in paths)


def _cordoned_elsewhere(values: Values) -> list[str]:
    """What is cordoned, and no log dir."""
    log_dirs = absolute_paths(values["log.dirs"] or values["log.dir"])
    return [path for path in values["cordoned.log.dirs"] if path != "*" and abspath(path) not in log_dirs]


_ROLL: Final = ("log.roll.ms", "log.roll.hours")
_JITTER: Final = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

RULES: Final = (
    Rule(
        ("broker.id", "node.id"),
        lambda values: bool(values["broker.id"] == values["node.id"]),
        "You must set `node.id` to the same value as `broker.id`.",
    ),
    Rule(
        ("process.roles",),
        lambda values: "broker" in values["process.roles"],
        "process.roles must name the broker role: a controller alone serves no client, and no other one needs it",
    ),
    Rule(
        ("inter.broker.listener.name", "listeners", "advertised.listeners", "controller.listener.names"),
        _inter_broker_listener_is_advertised,
        "requirement failed: inter.broker.listener.name must be a listener name defined in advertised.listeners",
    ),
    Rule(
        _ROLL,
        lambda values: _first_set(values, *_ROLL) >= 1,
        "requirement failed: log.roll.ms must be greater than or equal to 1",
    ),
    Rule(
        _JITTER,
        lambda values: _first_set(values, *_JITTER) >= 0,
        "requirement failed: log.roll.jitter.ms must be greater than or equal to 0",
    ),
    Rule(
        _RETENTION,
        # Any negative one means no limit.
        lambda values: _first_set(values, *_RETENTION) != 0,
        "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
    Rule(
        ("log.dirs", "log.dir"),
        lambda values: all(values["log.dirs"] or values["log.dir"]),
        "At least one log directory must be defined via log.dirs or log.dir.",
    ),
    Rule(
        ("cordoned.log.dirs",),
        lambda values: "*" not in values["cordoned.log.dirs"] or len(values["cordoned.log.dirs"]) == 1,
        "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
    ),
    Rule(
        ("cordoned.log.dirs", "log.dirs", "log.dir"),
        lambda values: not _cordoned_elsewhere(values),
        "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        "Missing entries : ",
        _cordoned_elsewhere,
    ),
    Rule(
        ("log.cleaner.threads",),
        # Kafka divides by it.
        lambda values: values["log.cleaner.threads"] >= 1,
        "Log cleaner threads should be at least 1",
    ),
    Rule(
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
        lambda values: values["log.cleaner.dedupe.buffer.size"] // values["log.cleaner.threads"] > _MEBIBYTE,
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    Rule(
        ("queued.max.request.bytes", "socket.request.max.bytes"),
        lambda values: (
            values["queued.max.request.bytes"] <= 0
            or values["queued.max.request.bytes"] >= values["socket.request.max.bytes"]
        ),
        "requirement failed: queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    Rule(
        ("max.connections.per.ip", OVERRIDES),
        lambda values: values["max.connections.per.ip"] != 0 or bool(parse_overrides(values[OVERRIDES])),
        f"requirement failed: max.connections.per.ip can be set to zero only if {OVERRIDES} property is set.",
    ),
    Rule(
        ("group.coordinator.rebalance.protocols",),
        lambda values: "classic" in values["group.coordinator.rebalance.protocols"],
        "Disabling the 'classic' protocol is not supported.",
    ),
    Rule(
        ("group.consumer.assignors",),
        lambda values: all(name in CONSUMER_ASSIGNORS for name in values["group.consumer.assignors"]),
        f"group.consumer.assignors may name {', '.join(CONSUMER_ASSIGNORS)}: no other class can be loaded",
    ),
    # Since Kafka 4.4: an assignor has one place among those that a group may take.
    Rule(
        ("group.consumer.assignors",),
        lambda values: _names_each_once(values["group.consumer.assignors"]),
        "group.consumer.assignors names an assignor twice, by its name or by that of its class",
    ),
    *_of_groups("consumer"),
    *_of_groups("share"),
    *_of_groups("streams"),
    _at_most(
        "group.streams.num.standby.replicas",
        "group.streams.max.standby.replicas",
        "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
    ),
    *_of_shares(),
)

# Pools that Kafka resizes while it runs, each time at most to the double and at least to the half.
RESIZABLE_POOLS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


def broken_rule(values: Values) -> Rule | None:
    """The first rule that does not hold, or None.  Rules behind one that is broken may not be answerable."""
    return next((rule for rule in RULES if not rule.holds(values)), None)


def check_together(values: Values) -> None:
    """Raise ``ConfigError`` unless every rule holds."""
    rule = broken_rule(values)
    if rule is not None:
        raise ConfigError(rule.says(values))


def check_change(before: Values, after: Values) -> None:
    """Raise ``ConfigError`` where a number of threads may not change that far at once."""
    for name in RESIZABLE_POOLS:
        refused = f"Dynamic thread count update validation failed for {name}={after[name]}, value should"
        if after[name] < before[name] // 2:
            raise ConfigError(f"{refused} be at least half the current value {before[name]}")
        if after[name] > before[name] * 2:
            raise ConfigError(f"{refused} not be greater than double the current value {before[name]}")
    threads, current = after["log.cleaner.threads"], before["log.cleaner.threads"]
    if threads < current // 2:
        raise ConfigError(f"Log cleaner threads cannot be reduced to less than half the current value {current}")
    if threads > current * 2:
        raise ConfigError(f"Log cleaner threads cannot be increased to more than double the current value {current}")
