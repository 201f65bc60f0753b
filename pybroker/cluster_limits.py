"""Every bound of what brokers of a cluster do with each other and with their store, with why.

Those of a broker by itself are in ``limits``.
"""

from __future__ import annotations

# Pauses between two tries to have an ISR changed: they double from the one to the other while the controller is away.
ISR_CHANGE_PAUSE_MIN_MS = 50
ISR_CHANGE_PAUSE_MAX_MS = 1_000

# Partitions whose ISR is asked for with one request.
ISR_CHANGES_AT_ONCE = 500

# Pauses of a follower after a failed fetch double from this to ``replica.fetch.backoff.ms``: after an election the new
# leader may hear of it some milliseconds later than its followers.
REPLICA_FETCH_PAUSE_MIN_MS = 50

# A leader looks at all partitions of a follower's session so often at least (or four times in
# ``replica.lag.time.max.ms``); between two such looks at those alone that something has happened to.
FOLLOWER_LOOK_MS = 5_000

# Followers append, and partitions take their roles, for so long in one turn of the loop.
REPLICA_APPEND_SLICE_MS = 10
REPLICA_ROLES_SLICE_MS = 10

# Between two tries to connect to a broker, at least and at most (Kafka's ``reconnect.backoff.ms`` and its ``max``); it
# doubles with each failure, and varies by a fifth so that brokers do not come all at once.
RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 1_000
RECONNECT_JITTER = 0.2

# How long one try may take (``socket.connection.setup.timeout.ms``): a machine that is away answers nothing.
CONNECT_TIMEOUT_MS = 10_000

# Requests of one channel to one broker that are not answered, and their bytes; one is taken however long it is.
PEER_REQUESTS_MAX = 1_000
PEER_REQUEST_BYTES_MAX = 32 << 20

# A reply to a login, of a broker that has not proved yet that it is one.  Its later replies are as long as a frame can
# say: a batch that one of them took must find its way, however long it is.
PEER_LOGIN_REPLY_BYTES_MAX = 128 << 10

# What a follower asks for with one fetch at most, whatever ``replica.fetch.response.max.bytes`` says, since an answer
# lies in memory as a whole.  It is longer where its first batch is.
REPLICA_FETCH_BYTES_MAX = 128 << 20

# A client's request goes to the active controller's broker in an envelope, which adds no more than this: two strings of
# the principal, each of 32,767 bytes at most, and what is short (64 bytes).
ENVELOPE_BYTES_MAX = 2 * 32_767 + 128

# How long a client's request is tried to be forwarded to the active controller where the client does not say, and at
# most (``request.timeout.ms`` and ``default.api.timeout.ms`` of Kafka's clients); how often, while no controller takes
# it; and how much longer an answer is waited for, so that the controller's own that time is over comes first.
FORWARD_PATIENCE_MS = 30_000
FORWARD_PATIENCE_MAX_MS = 60_000
FORWARD_RETRY_MS = 50
FORWARD_GRACE_MS = 1_000

# The first buffer of a reply is as long as the last reply was, up to this: followers' fetches are 10 MB.
PEER_BUFFER_KEPT_BYTES = 12 << 20

# Preferred leaders that are elected in one transaction where leadership goes back to them (Kafka's
# maxElectionsPerImbalance).
BALANCING_ELECTIONS_MAX = 1_000

# Until a store that failed is asked again: long enough that a store under way comes up, short against a session.
STORE_RETRY_MS = 200
# A broker repeats to the controller what the image does not show of its log dirs after twice the time before,
# up to this: a controller of an older version will never show it.
LOG_DIRS_TOLD_AGAIN_MAX_MS = 10_000

# Brokers tell each other that they live so often; a tenth of a second is a fifth of the time-out by default.
LIVENESS_INTERVAL_MS = 100

# How often the active controller looks whether a broker's session is over, and until a broker sends its heartbeat again
# where the controller did not take the last one.
CONTACTS_LOOK_MS = 250
HEARTBEAT_RETRY_MS = 500

# A broker that has withdrawn, because it decided and was cut off, comes back when another one decides, or after so many
# sessions.
WITHDRAWN_SESSIONS = 2

# A broker that was not heard for so long is asked whether it takes connections: a datagram is half an interval overdue.
LIVENESS_DOUBT_MS = 150

# How long an answer that names leaders waits for certainty at most: an election takes some 50 ms.
DOUBT_HOLD_MS = 500

# How long a broker that died is named in Metadata: clients whose connection to it broke ask again
# for a second or two.
DEPARTED_NAMED_MS = 2_000

# A broker that is silent, while its machine takes connections for it, is stopped or overloaded rather than dead, and
# has so many times the time-out.
LIVENESS_PATIENCE = 3

# How long a broker may take to answer whether it takes connections, which is asked by connecting (a knock).
LIVENESS_KNOCK_MS = 500

# Until a broker is asked so again, where a datagram of it came while it refused.
LIVENESS_KNOCK_AGAIN_MS = 20

# Datagrams that wait to be sent: those of three intervals in the largest cluster (``liveness.BROKERS_MAX``).
DATAGRAMS_WAITING_MAX = 1_000

# How long the address of a broker's host name is taken for known, and until one that was not found is looked for again.
NAME_LOOKUP_MS = 30_000
NAME_LOOKUP_RETRY_MS = 1_000

# Until a registration is tried again at first; the controller sees a broker's live key about 20 ms after it was put.
REGISTRATION_RETRY_MS = 10
# Until the log tells why a broker is not registered: at a start nobody may be the controller for a moment.
REGISTRATION_TOLD_MS = 2_000

# How long a broker that stops waits for others to lead in its place: longer than a controller's fail-over.
CONTROLLED_SHUTDOWN_MS = 15_000

# The last writer's stamp on a shared SQLite file is looked at so often while anybody follows it, which costs some
# microseconds, and SQLite itself is asked so often.
STORE_POLL_MS = 20
STORE_ASK_MS = 200

# Keys that a shared metadata store remembers the last change of: who was away for longer reads everything.
STORE_HISTORY_KEYS_MAX = 20_000

# ZooKeeper takes requests of 1 MB less a byte: of a longer transaction the writes go ahead by themselves, in parts.
STORE_CHANGE_BYTES_MAX = 900_000

# Names that clients choose and a key of the store has (a group's, a user's), percent-encoded: a key in ZooKeeper has
# 65,535 bytes at most.  A single name of letters, which is 32,767 bytes at most in a request, always fits.
STORE_NAMES_BYTES_MAX = 65_000

# Revisions from one snapshot in ZooKeeper to the next, and bytes of changes that bring one about earlier; the changes
# of as many revisions before it are kept for those who follow.
STORE_CHANGES_PER_SNAPSHOT = 1_000
STORE_CHANGE_BYTES_PER_SNAPSHOT = 16 << 20

# Changes that are asked of ZooKeeper at once, and keys of a snapshot that are looked at within a turn of the loop.
STORE_CHANGES_PER_TURN = 100
STORE_KEYS_PER_TURN = 1_000

# Partitions that one request to another broker names, where what is asked meanwhile is gathered, or very much may be to
# be told; one item goes however many it has.
GATHERED_PARTITIONS_MAX = 2_000

# So long a broker waits for others that start with it before it says that too few are registered.
BROKERS_AWAITED_MS = 10_000
