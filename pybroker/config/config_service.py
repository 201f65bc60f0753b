"""Describes and alters the settings of every config resource, and lets changes take effect.

Owns: which answer each resource gets, the order of alterations (one at a time, because APPEND and SUBTRACT build on
what is committed), and the broker's dynamic layers.  Owns no persistence: ``ConfigStore`` writes, and what it
committed comes back as an image.

Invariants: ``done`` runs exactly once, and not before everything that was accepted is in the image and in
``BrokerConfig``; a refused resource changes nothing and holds up no other one.

Counterparts in Kafka: ``ConfigHelper``, ``ConfigAdminManager`` and ``DynamicConfigPublisher``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pybroker.config import alter, describe
from pybroker.config.broker import NOTHING, BrokerConfig
from pybroker.config.loggers import alter_loggers, logger_entries
from pybroker.config.resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Alteration,
    ConfigChange,
    ConfigEntry,
    ConfigFailure,
    Description,
    Outcome,
)
from pybroker.config.schema import ConfigError
from pybroker_protocol.errors import ErrorCode

Overrides = Mapping[str, str]


class Image(Protocol):
    """What is needed of the cluster image."""

    @property
    def configs(self) -> Mapping[tuple[int, str], Overrides]: ...

    @property
    def topics_by_name(self) -> Mapping[str, Any]: ...

    @property
    def brokers(self) -> Mapping[int, Any]: ...

    @property
    def links(self) -> Mapping[str, Any]: ...

    @property
    def mirrors(self) -> Mapping[str, Any]: ...


class Delta(Protocol):
    """What is needed of what an image has changed."""

    @property
    def configs_changed(self) -> Collection[tuple[int, str]]: ...


class Metadata(Protocol):
    """The current image, and how to hear of the next one."""

    @property
    def image(self) -> Image: ...

    def subscribe(self, listener: Callable[[Any, Any], None]) -> Callable[[], None]: ...


class WriteResult(Protocol):
    """The store's answer for one change."""

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...


class ConfigStore(Protocol):
    """Commits changes; ``done`` runs later, with one answer per change, after the image that contains them.

    With ``validate_only`` they are judged as if, and forgotten.
    """

    def alter_configs(
        self, changes: Sequence[Any], done: Callable[[Sequence[WriteResult]], None], *, validate_only: bool = False
    ) -> None: ...


Done = Callable[[list[Outcome]], None]


# What a broker's own settings were made of: the default of all brokers, and what it has of its own.
_Layers = tuple[Overrides, Overrides]


class _Request(NamedTuple):
    """``asked`` are the alterations, ``looked_into`` the same with what the look at files has refused. ``by`` are the
    settings that the look went by, None where there was nothing to look at.
    """

    asked: Sequence[Alteration]
    looked_into: Sequence[Alteration]
    by: _Layers | None
    validate_only: bool
    done: Done


class ConfigService:
    """One broker's config resources.  ``config`` is changed in place when dynamic settings of brokers change."""

    def __init__(self, config: BrokerConfig, metadata: Metadata, store: ConfigStore, broker_id: int) -> None:
        self._config = config
        self._metadata = metadata
        self._store = store
        self._broker_id = broker_id
        if broker_id != config.node_id:
            config.adopt_node_id(broker_id)
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        # Each raises ConfigError for settings of this broker that its parts could not follow.
        self.checks: list[Callable[[BrokerConfig], None]] = []
        # Calls back, maybe later, with why its parts cannot follow them, which files say that the settings name.
        self.look: Callable[[BrokerConfig, Callable[[ConfigError | None], None]], None] | None = None
        # What this broker shows by names that are no settings, of those that are asked for.
        self.show: Callable[[Collection[str]], Mapping[str, str]] = lambda names: NOTHING
        # Why a mirrored topic stands as it does.
        self.reason_of_mirror: Callable[[str, Any], str] = lambda _name, mirror: str(mirror.reason)
        self._waiting: deque[_Request] = deque()
        self._writing = False
        metadata.subscribe(self.on_image)

    def subscribe(self, callback: Callable[[frozenset[str]], None]) -> None:
        """Call ``callback(names)`` whenever broker settings have changed, with the names of those that did.

        There are none where this broker's own were set to what they were: who reads files looks at them again then.
        """
        self._subscribers.append(callback)

    def on_image(self, image: Image, delta: Delta) -> None:
        """Take over the dynamic settings of a new image."""
        own = (BROKER, str(self._broker_id))
        cluster_default, per_broker = image.configs.get((BROKER, ""), NOTHING), image.configs.get(own, NOTHING)
        changed: frozenset[str] = frozenset()
        if cluster_default != self._config.cluster_default or per_broker != self._config.per_broker:
            changed = self._config.apply_dynamic(cluster_default, per_broker)
        if changed or own in delta.configs_changed:
            for callback in tuple(self._subscribers):
                callback(changed)

    # --- describe --------------------------------------------------------------------------------------------------

    def describe(
        self,
        resource_type: int,
        resource_name: str,
        keys: Collection[str] | None = None,
        include_documentation: bool = False,
    ) -> Description:
        """Every setting of one resource, or those named in ``keys`` (None or empty: all)."""
        try:
            entries = self._entries(resource_type, resource_name, keys)
        except ConfigFailure as failure:
            return Description(failure.error_code, failure.message)
        if include_documentation and resource_type != BROKER_LOGGER:
            from pybroker.config.documentation import documentation

            entries = [entry._replace(documentation=documentation(resource_type, entry.name)) for entry in entries]
        return Description(ErrorCode.NONE, None, tuple(entries))

    def _entries(self, resource_type: int, name: str, keys: Collection[str] | None) -> list[ConfigEntry]:
        overrides = self._overrides(resource_type, name)
        if resource_type == TOPIC:
            if name not in self._metadata.image.topics_by_name:
                raise ConfigFailure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
            entries = describe.topic_entries(self._config, overrides, keys)
            mirror = self._metadata.image.mirrors.get(name)
            if mirror is None:
                return entries
            return entries + describe.mirror_entries(mirror, self.reason_of_mirror(name, mirror), keys)
        if resource_type == BROKER:
            if not name:
                links = self._metadata.image.links
                return describe.broker_default_entries(self._config, keys) + describe.link_entries(links, keys)
            self._require_this_broker(name, "expected {} or empty string,")
            shown = self.show(keys) if keys else NOTHING
            return describe.broker_entries(self._config, keys) + describe.shown_entries(shown)
        if resource_type == BROKER_LOGGER:
            if not name:
                raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            self._require_this_broker(name, "expected {}")
            return [entry for entry in logger_entries() if not keys or entry.name in keys]
        if resource_type == CLIENT_METRICS:
            if not name:
                raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe.client_metrics_entries(overrides, keys)
        if resource_type == GROUP:
            if not name:
                raise ConfigFailure(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe.group_entries(self._config, overrides, keys)
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")

    def _require_this_broker(self, name: str, expected: str) -> None:
        if not alter.is_integer(name):
            raise ConfigFailure(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if int(name) != self._broker_id:
            message = f"Unexpected broker id, {expected.format(self._broker_id)} but received {name}"
            raise ConfigFailure(ErrorCode.INVALID_REQUEST, message)

    def resources(self, resource_types: Collection[int]) -> list[tuple[int, str]]:
        """(type, name) of everything that can be described, of these types.

        Every topic and every broker has settings; groups and client-metrics subscriptions are listed once they
        have settings of their own.
        """
        image = self._metadata.image
        found: list[tuple[int, str]] = []
        if GROUP in resource_types:
            found += sorted(key for key in image.configs if key[0] == GROUP)
        if CLIENT_METRICS in resource_types:
            found += sorted(key for key in image.configs if key[0] == CLIENT_METRICS)
        for of_brokers in (BROKER_LOGGER, BROKER):
            if of_brokers in resource_types:
                found += [(of_brokers, str(broker_id)) for broker_id in sorted(image.brokers)]
        if TOPIC in resource_types:
            found += [(TOPIC, name) for name in image.topics_by_name]
        return found

    # --- alter -----------------------------------------------------------------------------------------------------

    def alter(self, alterations: Sequence[Alteration], validate_only: bool, done: Done) -> None:
        """Check and commit; ``done`` gets one outcome per alteration, in order, maybe before this returns.

        Each resource comes once, or with a refusal.
        """

        def go_on(looked_into: Sequence[Alteration], by: _Layers | None) -> None:
            self._waiting.append(_Request(alterations, looked_into, by, validate_only, done))
            self._serve()

        self._look_into(alterations, go_on)

    def settle_here(
        self,
        alterations: Sequence[Alteration],
        validate_only: bool,
        done: Callable[[list[Outcome | None]], None],
    ) -> None:
        """Do what this broker does by itself, where another one's controller decides the rest: None for each of that.

        Those are its loggers, and what cannot be because of its own settings.  ``done`` may run before this returns.
        """
        self._look_into(alterations, lambda looked_into, _: done(self._settled(looked_into, validate_only)))

    def _look_into(
        self, alterations: Sequence[Alteration], go_on: Callable[[Sequence[Alteration], _Layers | None], None]
    ) -> None:
        """Refuse those of this broker's own settings whose files say no: ``go_on`` with all, once that is known, and
        with the settings that were gone by.

        Each resource comes once, so that there is one of these, and no other request waits for its files.
        """
        look, by = self.look, self._own_layers()
        for index, alteration in enumerate(alterations):
            after = None if look is None else self._own_settings_after(alteration)
            if after is None:
                continue

            def looked(error: ConfigError | None, index: int = index) -> None:
                if self._own_layers() != by:  # another alteration was faster: what was read is of no use
                    self._look_into(alterations, go_on)
                    return
                looked_into = list(alterations)
                if error is not None:
                    refusal = ConfigFailure(ErrorCode.INVALID_REQUEST, str(error))
                    looked_into[index] = looked_into[index]._replace(refusal=refusal)
                go_on(looked_into, by)

            assert look is not None
            look(after, looked)
            return
        go_on(alterations, None)

    def _own_layers(self) -> _Layers:
        return self._overrides(BROKER, ""), self._overrides(BROKER, str(self._broker_id))

    def _own_settings_after(self, alteration: Alteration) -> BrokerConfig | None:
        """What this broker's settings would be; None where they stay, or cannot be so: the decision says why."""
        if alteration.resource_type != BROKER or not alteration.resource_name or alteration.refusal is not None:
            return None
        try:
            alter.refuse_malformed(alteration)
            alter.require_broker(alteration.resource_name, self._broker_id)
            _, current = self._own_layers()
            return alter.own_settings_after(alteration, current, self._config)
        except (ConfigFailure, ConfigError):
            return None

    def _settled(self, alterations: Sequence[Alteration], validate_only: bool) -> list[Outcome | None]:
        outcomes: list[Outcome | None] = []
        for alteration in alterations:
            of_one_broker = alteration.resource_type == BROKER and alteration.resource_name
            if not of_one_broker and alteration.resource_type != BROKER_LOGGER:
                outcomes.append(None)
                continue
            try:
                if alteration.refusal is not None:
                    raise alteration.refusal
                change = self._change(alteration, validate_only)
            except ConfigFailure as failure:
                outcomes.append(Outcome(failure.error_code, failure.message))
            else:
                outcomes.append(Outcome(ErrorCode.NONE) if change is None else None)
        return outcomes

    def _serve(self) -> None:
        """Serve what waits until one request has to go to the store; its end comes back here."""
        while self._waiting and not self._writing:
            request = self._waiting.popleft()
            if request.by is not None and request.by != self._own_layers():
                self.alter(request.asked, request.validate_only, request.done)
                continue
            outcomes, changes = self._decide(request)
            if not changes:
                request.done([outcome or Outcome(ErrorCode.NONE) for outcome in outcomes])
                continue
            self._writing = True
            finish = self._finisher(request.done, outcomes)
            self._store.alter_configs(changes, finish, validate_only=request.validate_only)

    def _finisher(self, done: Done, outcomes: list[Outcome | None]) -> Callable[[Sequence[WriteResult]], None]:
        def finish(results: Sequence[WriteResult]) -> None:
            self._writing = False
            written = (Outcome(result.error_code, result.error_message) for result in results)
            done([next(written) if outcome is None else outcome for outcome in outcomes])
            self._serve()

        return finish

    def _decide(self, request: _Request) -> tuple[list[Outcome | None], list[ConfigChange]]:
        """An outcome per alteration, None for those whose change is to be written; and these changes."""
        outcomes: list[Outcome | None] = []
        changes: list[ConfigChange] = []
        for alteration in request.looked_into:
            try:
                if alteration.refusal is not None:
                    raise alteration.refusal
                change = self._change(alteration, request.validate_only)
            except ConfigFailure as failure:
                outcomes.append(Outcome(failure.error_code, failure.message))
                continue
            if change is None:
                outcomes.append(Outcome(ErrorCode.NONE))
                continue
            outcomes.append(None)
            changes.append(change)
        return outcomes, changes

    def _change(self, alteration: Alteration, validate_only: bool) -> ConfigChange | None:
        """What to write for one alteration; None when nothing is to be written (loggers)."""
        alter.refuse_malformed(alteration)
        resource_type, name = alteration.resource_type, alteration.resource_name
        current = self._overrides(resource_type, name)
        if resource_type == TOPIC:
            exists = name in self._metadata.image.topics_by_name
            return alter.change_topic(alteration, current, self._config, exists)
        if resource_type == BROKER:
            return alter.change_broker(alteration, self._broker_id, current, self._config, self.checks)
        if resource_type == CLIENT_METRICS:
            return alter.change_client_metrics(alteration, current)
        if resource_type == GROUP:
            return alter.change_group(alteration, current, self._config)
        if resource_type == BROKER_LOGGER and not alteration.replace:
            alter.require_broker(name, self._broker_id, "Unexpected node id. Expected {}, but received {}")
            alter_loggers(alteration.operations, validate_only)
            return None
        raise ConfigFailure(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")

    def _overrides(self, resource_type: int, name: str) -> Overrides:
        return self._metadata.image.configs.get((resource_type, name), NOTHING)
