"""The bounds that several files share, and those that bound memory as a sum, with why.

Owns: numbers that keep memory and time bounded when a peer misbehaves or a topic grows. A bound that one file reads
stands in that file, unless it is a part of the memory that these bounds sum up to (``tests/test_shared_limits.py``).
One that belongs to a rule of Kafka stands beside that rule. Settings that Kafka already has
(``socket.request.max.bytes``, ``fetch.max.bytes``, …) are not repeated. Those of storage are in ``storage_limits``,
those between brokers in ``cluster_limits``, those of the wire itself in ``pybroker_protocol``, which imports nothing of
the broker.

The unit is part of each name.
"""

# --- listening ---------------------------------------------------------------------------------------------------

# Files have one of so many parts of the process's descriptors, and connections the others: neither takes the other's.
DESCRIPTOR_PARTS = 4

# Connections that wait to be let in because they come too fast, as many as may wait in the kernel.
PENDING_CONNECTIONS_MAX = 1_024

# --- receiving ---------------------------------------------------------------------------------------------------

# The first buffer of an unfinished frame; it doubles as bytes arrive and is never sized by the declared length.
FRAME_BUFFER_MIN_BYTES = 16 << 10

# Free receive buffers kept for reuse: fresh pages cost more than the copy into them.  One that was not needed between
# two sweeps (``SWEEP_INTERVAL_MS``) is let go.
BUFFER_POOL_BYTES = 32 << 20

# Received bytes over all connections that are not done with, when queued.max.request.bytes is not set (-1).
# Above it connections that need to grow stop reading until others are done.
QUEUED_REQUEST_BYTES = 256 << 20

# Frames above this are large, and have three quarters of the budget at most.  Clients send batches of a megabyte
# (``max.request.size``) without being asked to.
LARGE_FRAME_BYTES = 2 << 20

# While the budget is full, or replies wait for space, a connection is closed that does too little over so long.  How
# often that is looked at: a connection that waits for a place that slow peers keep waits for about the sum of both.
SLOW_FRAME_MS = 1_000
SHORTAGE_LOOK_MS = 250

# --- logins --------------------------------------------------------------------------------------------------------

# Connections that are in a TLS handshake or not authenticated.
HALF_OPEN_MAX = 5_000

# What all of them together hold: of requests and TLS messages that have not come to their end, of requests whose answer
# is waited for, and of client ids that are longer than others.
HALF_OPEN_BYTES_MAX = 64 << 20

# What is read at once of encrypted bytes, for all connections with TLS together: sixteen of its records.
TLS_READ_BYTES = 256 << 10

# Who it is where nobody asks (KafkaPrincipal.ANONYMOUS).
ANONYMOUS = "User:ANONYMOUS"

# --- serving -----------------------------------------------------------------------------------------------------

# A connection's turn, and what those with long ones have of each turn of the loop: so long everybody else waits for
# them, and so long a request may take that is waited for by nobody else.
TIME_SLICE_NS = 1_000_000

# Connections whose turns take less on the average of the last few are served as soon as their bytes are there: some
# twenty small requests, or a batch of a megabyte.
SHORT_SLICE_NS = 250_000

# Frames that are longer are decoded in steps, with their requests' handlers behind: below it even the smallest elements
# are decoded in some milliseconds.  Such batches are not written by the loop, so no small Produce comes this way.
WHOLE_FRAME_BYTES = 128 << 10

# What a handler hands to a service as one operation: ids of groups and the like, and topics with their partitions.
# Each costs 5 to 30 microseconds, so a portion takes some milliseconds; what is longer is served portion by portion.
ELEMENTS_AT_ONCE = 100
PARTITIONS_AT_ONCE = 500

# Larger frames that are decoded and handled in steps at once, and requests that have had many shares of a turn; the
# others wait with their bytes, which are counted, where the objects that are made of them are not: a million elements
# take some 250 MB.
LARGE_REQUESTS_AT_ONCE = 4

# Where so many large ones wait behind those that are under way, the next are not even begun, but for Produce and Fetch,
# which are mostly over in their connection's share: of a millisecond's decoding there is up to a megabyte of objects.
LARGE_REQUESTS_BEGUN_MAX = 64

# How much nicer threads that work for long are than the loop's, out of 20.  Where more wants to run than there are
# processors, a writer of large batches with the loop's own share kept the loop waiting for whole slices of the
# scheduler: small requests of others had a p99 more than twice as long.  At 5 they gain less than half of that; where
# other processes compete as well, large batches lose a tenth at 10.  Shorter slices for the loop (``sched_setattr``)
# changed nothing.  The flusher is as important as the loop, because acknowledgements wait for it.
WORKER_NICENESS = 10

# --- sending -----------------------------------------------------------------------------------------------------

# A connection with more than this unsent is served nothing further.
UNSENT_BYTES = 1 << 20

# Bytes of replies that were long in the making and are not sent, over all connections; above it no further large
# request goes on.
UNSENT_REPLIES_BYTES = 128 << 20

# Decisions that an authorizer remembers, some 400 bytes each; what is asked for is the client's to choose, so it begins
# anew when they are too many.
AUTHORIZER_DECISIONS = 20_000

# Keys of delegation tokens that a broker remembers, some 500 bytes each: those of who logged in last.  Each costs an
# iterated hash, two milliseconds of a thread, when it is needed anew.
TOKEN_KEYS_MAX = 10_000

# How often idle and stalled connections are looked for.
SWEEP_INTERVAL_MS = 2_000

# --- waiting -----------------------------------------------------------------------------------------------------

# A fetch of more partitions than this is read in slices, every one a turn of the loop: opening 10,000 logs takes more
# than a second.
FETCH_PARTITIONS_AT_ONCE = 64

# Partitions that all fetch sessions together remember, in 400 bytes each: a client may name any, and not come back.
SESSION_PARTITIONS_MAX = 500_000

# --- answering ---------------------------------------------------------------------------------------------------

# A fetch reply never carries more record bytes than this, whatever fetch.max.bytes and the client say: a frame's
# length is an int32.
FETCH_REPLY_BYTES = 1 << 30

# --- quotas ------------------------------------------------------------------------------------------------------

# Clients of which what they use of their quotas is kept.  One costs some 3 KB.
QUOTA_CLIENTS = 10_000

# --- groups ------------------------------------------------------------------------------------------------------

# Hashing a group's id costs more than serving a heartbeat, so the partitions of so many groups and transactional ids
# are remembered, except of absurdly long ids (a client may send 32 KiB), which would let a client fill the memory.
COORDINATOR_KEYS_REMEMBERED = 32_768
REMEMBERED_COORDINATOR_KEY_CHARS = 256

# Sets of topic names that members of consumer groups subscribe to and that are kept once for all members; more than the
# groups of a broker that are not all alike.
SUBSCRIPTIONS_REMEMBERED = 1_024

# --- telemetry ---------------------------------------------------------------------------------------------------

# Client instances that are remembered: Kafka's own bound, about one per connection of a busy broker.
TELEMETRY_INSTANCES = 16_384

# Bytes of latest payloads over all instances: a client may push telemetry.max.bytes (1 MiB), most push a few KiB.
TELEMETRY_PAYLOAD_BYTES = 16 << 20
