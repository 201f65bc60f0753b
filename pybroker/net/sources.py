"""The ways to the sources of a broker's links: all that were made, so that they end with the broker.

Owns: that list.  A broker without links imports nothing but this.  Does not own a way (``source_client``), nor when one
is made or closed (``cluster/links/link_keeper``, ``replication/mirrored_link``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.config.link_config import LinkConfig
    from pybroker.handlers.services import Services
    from pybroker.net.source_client import SourceClient


class Sources:
    """One per broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._made: list[SourceClient] = []

    def connect(self, config: LinkConfig) -> SourceClient:
        """See ``cluster.links.source_port.Connect``."""
        from pybroker.net.source_client import SourceClient

        source = SourceClient(self._services.env, config, self._services.broker_id)
        self._made = [each for each in self._made if not each.is_over] + [source]
        return source

    def close(self) -> None:
        """End all of them."""
        for source in self._made:
            source.close()

    async def wait_closed(self) -> None:
        """After they are closed: until what was under way on the loop is over, too."""
        for source in self._made:
            await source.wait_closed()
