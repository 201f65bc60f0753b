"""The bounds, with why, that several files share of what brokers of a cluster do with each other and with their store.

Those of a broker by itself are in ``limits``.
"""

from __future__ import annotations

# Pauses of a follower after a failed fetch double from this to ``replica.fetch.backoff.ms``: after an election the new
# leader may hear of it some milliseconds later than its followers.
REPLICA_FETCH_PAUSE_MIN_MS = 50

# How long one try may take (``socket.connection.setup.timeout.ms``): a machine that is away answers nothing.
CONNECT_TIMEOUT_MS = 10_000

# A client's request goes to the active controller's broker in an envelope, which adds no more than this: two strings of
# the principal, each of 32,767 bytes at most, and what is short (64 bytes).
ENVELOPE_BYTES_MAX = 2 * 32_767 + 128

# Until a store that failed is asked again: long enough that a store under way comes up, short against a session.
STORE_RETRY_MS = 200

# Brokers tell each other that they live so often; a tenth of a second is a fifth of the time-out by default.
LIVENESS_INTERVAL_MS = 100

# How long an answer that names leaders waits for certainty at most: an election takes some 50 ms.
SUSPICION_HOLD_MS = 500

# Keys that a shared metadata store remembers the last change of: who was away for longer reads everything.
STORE_HISTORY_KEYS_MAX = 20_000

# Partitions that one request to another broker names, where what is asked meanwhile is gathered, or very much may be to
# be reported; one item goes however many it has.
GATHERED_PARTITIONS_MAX = 2_000
