"""Every bound of the logs on disk, with why: of what a partition keeps open, reads and writes at once, and cleans.

Those of everything else that a broker does are in ``limits``.
"""

from __future__ import annotations

# Open segments hold two descriptors and a map each.
SEGMENTS_OPEN_MAX = 16_384

# Directories of deleted partitions are renamed for so long at a time: that of a filled one takes 50 microseconds.
DELETION_SLICE_MS = 3

# Threads that make a log dir's large appends: with two, four connections stored 1.2 times as much, and where the host
# has the memory half as much again and more; a third gave a little more, and its requests to others waited for longer.
WRITERS_PER_LOG_DIR = 2

# Appends that one of them is handed at once: it should not have to wait for the loop to come round.
WRITER_JOBS_AHEAD = 4

# Batches whose records one of them looks at, or writes anew, at the same time: an append waits for a portion of each
# (``WORK_PORTION_NS``).  After so many steps, of a few hundred microseconds each, the next that waits has its turn:
# large batches of producers are done by then, what goes on for seconds is not.
WRITER_STEPS_AHEAD = 2
WRITER_STEPS_PER_TURN = 100

# For so long after a small append one thread makes all the large ones: small requests beside two had twice the p99.
# Less niceness makes that worse: a thread that is put aside while it holds the interpreter keeps the loop waiting.
SMALL_APPENDS_REMEMBERED_MS = 1_000

# Larger appends go to a writer thread: a copy of this size into the page cache is what the loop may be held up by.
INLINE_WRITE_BYTES_MAX = 128 << 10

# Where records have to be looked at, those of batches that are larger, compressed or not, or hold more of them, are
# decoded in a thread: the loop is held up for a millisecond or two.
INLINE_DECODE_BYTES_MAX = 64 << 10
INLINE_DECODE_RECORDS_MAX = 1_000

# Where nothing but the largest timestamp of records is looked for, which are not compressed, so many take as long.
INLINE_TIMES_RECORDS_MAX = 10_000

# A search by timestamp stops after so many batches, records of a batch or bytes of them once they are decompressed, to
# see whether others have their turn: that is after half a millisecond.  The loop does no more of a search than that.
BATCHES_WALKED_PER_STEP = 1_000
RECORDS_SEARCHED_PER_STEP = 1_000
BYTES_SEARCHED_PER_STEP = 64 << 10

# Segments whose index a search by timestamp looks into for the first time in one turn of the loop.
SEGMENTS_LOOKED_AT_ONCE = 100

# Searches by timestamp that a log dir's reader thread has at once, of those in batches with no more records than
# producers send, and of those in larger ones: each may hold 128 MB, of one snappy block or of what zstd looks back at.
LOOKUPS_AT_ONCE = 2
ORDINARY_BATCH_RECORDS_MAX = 50_000

# Records at fault that the answer to a Produce names: a few KB may be millions of them.
RECORD_ERRORS_MAX = 1_000

# Where the last batches of producers are looked for when a log is opened: what a dozen of them had in flight, five
# batches each, and more of small ones.  Headers alone are read.
PRODUCERS_TAIL_BYTES = 256 << 10
PRODUCERS_TAIL_BATCHES = 64

# How far from a log's end transactions are looked for that were decided and not replicated when it was closed.
UNREPLICATED_TRANSACTIONS_BYTES = 8 << 20

# Producers per partition whose next batch was refused and is waited for: they come back within their time-outs.
UNWRITTEN_PRODUCERS_MAX = 10_000
# What was sent behind such a batch is refused with its error for so long: clients pause for a second at most before
# they send it again, and one that has given the batch up has to hear of the gap before its own time-outs end.
REFUSED_BATCH_REMEMBERED_MS = 10_000

# So much of a segment the kernel may hold before it is asked to begin to write it: a burst goes to memory, and what is
# sustained does not pile up until the kernel throttles its writers, nor for the sync at the segment's end.
# ``sync_file_range`` asks for it, which commits no journal.  To sync each 64 MB instead cost bursts of large batches a
# third of their rate and small requests beside them their p99, because an append on the loop waits for a journal that
# is being committed.  Never to ask is as fast for bursts, slower by a seventh once the kernel throttles, and leaves a
# gigabyte to a roll's sync.  To ask for 32 MB at a time changed nothing.
WRITE_BACK_BYTES = 256 << 20

# Buffers of cold reads that are out at once, over all logs; past it a cold read brings one batch only.
COLD_BUFFER_BYTES_MAX = 64 << 20

# One cold read brings no more than this: its buffer is fresh memory, which is made while every other thread waits.
COLD_READ_BYTES_MAX = 1 << 20

# How far past a cold read the kernel is asked to read on.
READ_AHEAD_BYTES = 2 << 20

# Batches of the recent past that a segment knows by name: 64 KB per active segment at most; beyond that the sparse
# index and a scan answer.
TAIL_ENTRIES_MAX = 8192

# Remembered ends of earlier reads in a segment, where sequential readers of old data go on.
CURSORS_MAX = 64

# What was written this recently is taken to be in the page cache without asking the kernel.
WARM_TAIL_BYTES = 4 << 20

# Pages that were read through maps count as the broker's memory until it lets go of them; the page cache keeps them.
# The broker looks this often whether they are more than so many bytes.  If so it lets go of what was appended since the
# last look and, less often, of all segments that nobody has used since.  Whoever lets go of all at each look takes a
# tenth from bulk readers, who map the same pages anew.
MAPPED_CHECK_INTERVAL_MS = 100
MAPPED_BYTES_MAX = 32 << 20
UNREAD_CHECK_INTERVAL_MS = 2_000

# To take so much out of the process's memory holds the loop for up to a millisecond.
RELEASED_BYTES_PER_TURN = 32 << 20

# Housekeeping looks at this many partitions per turn of the loop, so that it does not hold requests up.
PARTITIONS_PER_TURN = 20

# A sealed segment of more bytes whose offset index has no entry gets one: else each read walks from its beginning.
UNINDEXED_BYTES_MAX = 1 << 20

# After a crash a partition with no more data than this is recovered at its first touch, or in the background, and not
# before the broker serves: of the smallest batches these are 4,000, which hold the loop for some 20 ms.
RECOVERED_AT_FIRST_TOUCH_BYTES_MAX = 256 << 10

# The background's recovery holds the loop for so long, or so many partitions, at a time, and lets it go for so long.
RECOVERY_SLICE_MS = 2
RECOVERY_SLICE_PARTITIONS = 16
RECOVERY_PAUSE_MS = 5

# Partitions of which the loop tells DescribeLogDirs at a time whose log is in use, before their files are looked at.
PARTITIONS_DESCRIBED_AT_ONCE = 100

# A full disk is reported when it begins and, with the number of refusals, when there is room again and nothing was
# refused for so long: one line per refused append would fill what room there is.  Where it is full again within
# ``ROOM_LASTS_MS`` the interval doubles, so that replicas do not come and go with each file that is removed.
ROOM_CHECK_INTERVAL_MS = 1_000
ROOM_CHECK_INTERVAL_MAX_MS = 60_000
ROOM_LASTS_MS = 60_000
# There is room where so much could be written, or a twentieth of the file system (``os_file.has_room``), and what was
# refused; at a broker's start, where it may have been stopped with little, the smaller bound holds.
ROOM_BYTES = 64 << 20
ROOM_AT_START_BYTES = 256 << 10

# With more unsynced logs than this in a log dir, a clean stop syncs their file system as a whole: that also waits for
# what others have written to it, but syncing five files each takes 2 ms a log and more.
LOGS_SYNCED_ONE_BY_ONE_MAX = 100

# How often logs with ``flush.ms`` are looked at.  Kafka's ``log.flush.scheduler.interval.ms`` counts as the default of
# ``flush.ms`` only: its own default would mean never.
FLUSH_CHECK_INTERVAL_MS = 1_000

# --- moves between log directories --------------------------------------------------------------------------------

# A thread that copies lets others have their turn after a piece of this size: it takes a fraction of a millisecond.
MOVE_PIECE_BYTES = 256 << 10

# A segment is copied in steps of this size, and the kernel asked to begin to write each: more dirty pages, and it
# throttles all writers.  Under a throttle a step is what a tenth of a second allows.
MOVE_STEP_BYTES = 8 << 20
MOVE_STEPS_PER_SECOND_THROTTLED = 10

# What the two logs may differ by when the exchange begins: so much is copied, and synced, while appends wait.
MOVE_TAIL_BYTES_MAX = 1 << 20

# A move that cannot go on now (no room, no descriptor, a compaction that has not ended) tries again after so long.
MOVE_RETRY_MS = 1_000
MOVE_COMMIT_RETRY_MS = 100

# Log dirs that are remembered for partitions which are not here yet; past that the oldest is forgotten.
PREFERRED_LOG_DIRS_MAX = 10_000

# --- cleaning ----------------------------------------------------------------------------------------------------

# Segments that are cleaned into one at a time: swapping them is a few renames for each, on the loop.
CLEANED_GROUP_SEGMENTS_MAX = 32

# The cleaner syncs what it writes in portions of this size: more dirty pages, and the kernel throttles all writers.
# To write portions back without a sync gave a producer beside it nothing.
CLEANER_SYNC_BYTES = 8 << 20

# The cleaner looks at so many records before it pauses: a thread that shares the interpreter works for 2 ms then, and
# what a slice needs in memory is small whatever a batch's header claims.
CLEANER_SLICE_RECORDS = 2_000

# After so many records, a minute's work, a round goes no further into the dirty part, and the next log has its turn: a
# few KB may be millions of records.  The next round over the log goes on.
CLEANER_ROUND_RECORDS_MAX = 50_000_000

# A cleaner on a thread shares the interpreter with the broker and its host: it goes by small pieces, rests so many
# times as long as each took, and has room for some 270,000 keys a round.
IN_PROCESS_CLEANER_BUFFER_BYTES = 32 << 10
IN_PROCESS_CLEANER_REST = 3
IN_PROCESS_CLEANER_MAP_BYTES = 8 << 20
