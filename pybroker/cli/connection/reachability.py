"""Whether a cluster is there and lets this client in, found out before a client library is given the work.

Owns: how long a starting broker is waited for, and what is said where none is reached. A library tries again for as
long as it is allowed to, and says "no broker" of a wrong password as of a wrong port; ``broker_connection`` says which.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pybroker.cli.connection.broker_connection import BrokerConnection, NotReached, Step
from pybroker.cli.connection.client_settings import Access, Address
from pybroker.cli.terminal.failure import CommandFailed

# A person at a prompt should learn in seconds that no broker is there; one that starts anew has as long.
REACHED_WITHIN_S: Final = 5.0
# Of one address; more than a broker needs that has much to do.
CONNECTED_WITHIN_S: Final = 5.0
_PAUSE_S: Final = 0.1
_WAIT_S: Final = 3.0
_ADVICE: Final = "Is --bootstrap right? `pybroker doctor` checks each step of the way."


def reached(
    addresses: Sequence[Address], access: Access, within_s: float = REACHED_WITHIN_S, *, advises: bool = False
) -> BrokerConnection:
    """A connection to one of the brokers, which has let this client in; ``CommandFailed``, a sentence for each.

    ``advises`` what to do where no broker is there at all, as a command does at its start.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        failed: list[NotReached] = []
        for address in addresses:
            wait_s = min(_WAIT_S, max(deadline_s - time.monotonic(), 2 * _PAUSE_S))
            connection = BrokerConnection(address, access, wait_s)
            try:
                connection.open()
            except NotReached as error:
                failed.append(error)
            else:
                return connection
        if not any(error.passes for error in failed) or time.monotonic() >= deadline_s:
            is_away = advises and all(error.step in (Step.NAME, Step.TCP) for error in failed)
            raise CommandFailed("\n".join([*map(str, failed), *([_ADVICE] if is_away else [])]))
        time.sleep(_PAUSE_S)


def reach(
    addresses: Sequence[Address], access: Access, within_s: float = REACHED_WITHIN_S, *, advises: bool = False
) -> None:
    """Return once one of the brokers has let this client in; as ``reached``."""
    if access.is_known:
        reached(addresses, access, within_s, advises=advises).close()
