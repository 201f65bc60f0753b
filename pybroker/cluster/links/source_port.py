"""The port to another cluster, as a client of it: what cluster links ask of their sources.

Owns: the ``Source`` protocol, and the versions in which a source is asked.  Owns no connection (``net/source_client``).

The versions are those that every source speaks that is served, Apache Kafka 3.1 to 4.4. From Fetch 13 on a topic is
asked for by its id, so that one that was deleted and made anew is never taken for the former.

Counterpart in Kafka: the blocking senders of KIP-1279's mirror fetchers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pybroker.cluster.membership.peers import Asked

if TYPE_CHECKING:
    from pybroker.config.link_config import LinkConfig

FETCH_VERSION: Final = 13
LIST_OFFSETS_VERSION: Final = 7
METADATA_VERSION: Final = 12
DESCRIBE_CONFIGS_VERSION: Final = 4
OFFSET_FOR_LEADER_EPOCH_VERSION: Final = 4
LIST_GROUPS_VERSION: Final = 4
OFFSET_FETCH_VERSION: Final = 8
# Asked for on request alone: a source that lacks them is mirrored all the same.
DESCRIBE_ACLS_VERSION: Final = 2
DESCRIBE_CLIENT_QUOTAS_VERSION: Final = 1
DESCRIBE_USER_SCRAM_CREDENTIALS_VERSION: Final = 0
# By API key.
NEEDED_VERSIONS: Final[Mapping[int, int]] = {
    1: FETCH_VERSION,
    2: LIST_OFFSETS_VERSION,
    3: METADATA_VERSION,
    9: OFFSET_FETCH_VERSION,
    16: LIST_GROUPS_VERSION,
    23: OFFSET_FOR_LEADER_EPOCH_VERSION,
    32: DESCRIBE_CONFIGS_VERSION,
}

# Any broker of the source: one of ``bootstrap.servers``, another one each time the last did not answer, and in the end
# one that was learned of.
ANY_NODE: Final = -1


class Source(Asked, Protocol):
    """The brokers of another cluster; one of which nothing was learned is UNREACHABLE."""

    def learn(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        """Where the source's brokers are, all of them."""
        ...


# A way to the source of a link; ConfigError for keys and passwords that cannot be used.
Connect = Callable[["LinkConfig"], Source]
