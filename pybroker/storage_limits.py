"""The bounds of the logs on disk that several files share, or that bound memory as a sum, with why.

Those of everything else that a broker does are in ``limits``.
"""

from __future__ import annotations

# Open segments hold two descriptors and a map each.
SEGMENTS_OPEN_MAX = 16_384

# Larger appends go to a writer thread: a copy of this size into the page cache is what the loop may be held up by.
INLINE_WRITE_BYTES_MAX = 128 << 10

# Where records have to be looked at, those of larger batches, compressed or not, are decoded in a thread: the
# loop is held up for a millisecond or two.
INLINE_DECODE_BYTES_MAX = 64 << 10

# Buffers of cold reads that are out at once, over all logs; past it a cold read brings one batch only.
COLD_BUFFER_BYTES_MAX = 64 << 20

# Pages that were read through maps count as the broker's memory until it lets go of them; the page cache keeps them.
# Above so many bytes it lets go of what was appended since the last look and, less often, of all segments that no
# read has used since.
MAPPED_BYTES_MAX = 32 << 20

# Housekeeping looks at this many partitions per turn of the loop, so that it does not hold requests up.
PARTITIONS_PER_TURN = 20

# After a crash a partition with no more data than this is recovered at its first touch, or in the background, and not
# before the broker serves: of the smallest batches these are 4,000, which hold the loop for some 20 ms.
RECOVERED_AT_FIRST_TOUCH_BYTES_MAX = 256 << 10

# A move that cannot go on now (no space, no descriptor, a compaction that has not ended) tries again after so long.
MOVE_RETRY_MS = 1_000
