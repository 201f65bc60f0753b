"""Every bound of the broker, with why.

Owns: numbers that keep memory and time bounded when a peer misbehaves.  Settings that Kafka already has
(``socket.request.max.bytes``, ``fetch.max.bytes``, …) are not repeated here.

Units are the last word of each name.
"""

# --- receiving ---------------------------------------------------------------------------------------------------

# One buffer per loop that every idle connection reads into.  64 KiB reads cost four times the CPU of 1 MiB reads.
RECEIVE_BUFFER_BYTES = 1 << 20

# The first buffer of an unfinished frame; it doubles as bytes arrive and is never sized by the declared length.
FRAME_BUFFER_MIN_BYTES = 16 << 10

# Free receive buffers kept for reuse: fresh pages cost more than the copy into them.
BUFFER_POOL_BYTES = 32 << 20

# Bytes of unfinished and waiting frames over all connections when queued.max.request.bytes is not set (-1).
# Above it connections that need to grow stop reading until others are done.
QUEUED_REQUEST_BYTES = 256 << 20

# While the budget is full one connection at a time may finish its frame, in this time.
STARVED_FRAME_MS = 4_000

# --- serving -----------------------------------------------------------------------------------------------------

# A connection's share of one turn of the loop; the rest waits behind the other connections, so that nobody's
# p99 is another's batch.
REQUESTS_PER_TURN = 64
TURN_NS = 1_000_000

# Produce requests that may wait for the disk behind one another on one connection; clients have 5 in flight.
PIPELINED_PRODUCE_REQUESTS = 128
PIPELINED_PRODUCE_BYTES = 64 << 20

# --- sending -----------------------------------------------------------------------------------------------------

# A connection with more than this unsent is served nothing further.
UNSENT_BYTES = 1 << 20

# Replies shorter than this are joined into one buffer before they go to the transport: a vectored write has a
# cost per buffer.
JOIN_BYTES = 16 << 10

# A peer that takes no byte of its replies for this long is closed: its views pin mapped segments.
WRITE_STALL_MS = 30_000

# How often idle and stalled connections are looked for.
SWEEP_INTERVAL_MS = 2_000

# --- waiting -----------------------------------------------------------------------------------------------------

# The wheel on which parked requests expire turns in steps of this length.
PURGATORY_TICK_MS = 5

# max_wait_ms of a fetch beyond this is cut (a client that asks for days would pin its entry for days).
FETCH_WAIT_MAX_MS = 600_000

# --- answering ---------------------------------------------------------------------------------------------------

# A fetch reply never carries more record bytes than this, whatever fetch.max.bytes and the client say: a frame's
# length is an int32.
FETCH_REPLY_BYTES = 1 << 30

# Software names and versions that clients send with ApiVersions are cut to this, for logs and metrics.
SOFTWARE_NAME_CHARS = 100
