"""The only broker of its cluster: a member whose controller is active from the start, and which hears of no other.

Owns: founding the store, taking the controller key and registering the broker, all in the one transaction of a start.

Invariant: ``load`` writes nothing; ``register`` commits what it registers, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from pybroker.cluster.controller.controller import static_min_insync_replicas, tell_missing
from pybroker.cluster.decisions import eligible_replicas
from pybroker.cluster.decisions.broker_changes import cordon_directories, register_broker
from pybroker.cluster.decisions.operations import FoundReplicas, Heartbeat
from pybroker.cluster.image.cluster_image import BrokerRegistration, Endpoint, ImageBuilder
from pybroker.cluster.membership.cluster_member import ClusterMember
from pybroker.cluster.store import store_codec
from pybroker.cluster.store.metadata_store import ABSENT, Entry, StoreError, Transaction


class Standalone(ClusterMember):
    """Start is ``load``, then ``register`` in place of ``join``; both block.

    It is a class of its own because of the start, which is one transaction, for which a full disk has space. A member
    waits for four (to found, to enter, to take the key, to register), and needs more modules.
    """

    is_alone: ClassVar[bool] = True

    _first_puts: Mapping[str, bytes] = MappingProxyType({})
    _holder: Entry | None = None  # of the controller key, as the image was loaded beside it
    _cordoned: Sequence[bytes] | None = ()  # what the controller has heard last, None where that is not known

    def _load_exactly(self) -> dict[str, Entry]:
        entries = super()._load_exactly()
        self._holder = entries.get(store_codec.CONTROLLER)
        return entries

    def _put_first(self, entries: dict[str, Entry], key: str, puts: Mapping[str, bytes]) -> dict[str, Entry]:
        secret = store_codec.encode_secret(self._env.new_secret())
        self._first_puts = {**puts, store_codec.SECRET: secret}
        return {**entries, **{put: Entry(value, 0) for put, value in self._first_puts.items()}}

    @property
    def broker_epoch(self) -> int:
        return self.follower.image.brokers[self.node_id].epoch

    def cordon(self, directories: Sequence[bytes]) -> None:
        if self._cordoned is not None and set(directories) == set(self._cordoned):
            return  # a heartbeat's handler is not imported at a start for nothing
        self._cordoned = directories
        self.channel.heartbeat(self._on_cordon_answered, cordoned_directories=directories)

    def _on_cordon_answered(self, heartbeat: Heartbeat) -> None:
        if heartbeat.error_code:
            self._cordoned = None  # so that the same goes out when it is set again

    def register(
        self,
        endpoints: Mapping[str, Endpoint],
        rack: str | None,
        log_dirs: Sequence[bytes],
        found: FoundReplicas = MappingProxyType({}),
        *,
        clean_shutdown: bool = True,
        cordoned: Sequence[bytes] = (),
    ) -> None:
        """Take the controller key, register this broker and publish the first image, in one transaction.

        ``endpoints`` are what clients of each listener connect to. ``log_dirs`` are the ids of the log dirs that work,
        ``cordoned`` those of them that take no new replicas. ``found`` says where replicas lie for which
        ``loaded_image`` names another log dir, or none. After an unclean shutdown the leader epochs of this broker's
        partitions grow. StoreError when the store fails.
        """
        loaded, dirs = self.loaded_image, tuple(log_dirs)
        own = BrokerRegistration(self.node_id, 0, self._env.new_uuid(), dict(endpoints), rack, log_dirs=dirs)
        builder = ImageBuilder(loaded)
        if eligible_replicas.are_tracked(loaded):
            eligible_replicas.prepare_settings(builder, static_min_insync_replicas(self._config))
        tell_missing(self.node_id, register_broker(builder, own, found, clean_shutdown=clean_shutdown))
        cordon_directories(builder, self.node_id, cordoned)
        builder.set_controller(self.node_id)
        applied = _apply_retained(builder, store_codec.retained(self._store.load(store_codec.RETAINED)))
        puts, deletes = store_codec.encode(loaded, builder.view(), builder.delta())
        holder = self._holder
        before = None if holder is None else store_codec.decode_controller(holder.value)
        key = store_codec.next_holder(before, self.node_id, builder.view().brokers[self.node_id].epoch)
        puts[store_codec.CONTROLLER] = store_codec.encode_controller(key)
        version = ABSENT if holder is None else holder.version
        transaction = Transaction({store_codec.CONTROLLER: version}, {**self._first_puts, **puts}, deletes + applied)
        result = self._store.commit_at_start(transaction)
        if result.revision is None:
            raise result.error or StoreError("another broker has just become the controller in this metadata store")
        self._first_puts, self._cordoned = {}, cordoned
        self.controller.activate(version + 1, key.controller_epoch)
        self.follower.apply(*builder.build(result.revision))
        self.follower.publish()


def _apply_retained(builder: ImageBuilder, retained: Mapping[str, bytes]) -> tuple[str, ...]:
    """Take up what a takeover from Kafka kept and this version serves; returns the keys that are done with."""
    if not retained:
        return ()
    from pybroker.cluster.kraft.kraft_takeover import apply_retained

    return apply_retained(builder, retained)
