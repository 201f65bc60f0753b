"""What several rows of the tables of settings may be: ranges, choices and forms that they share.

Owns: these values, and Kafka's words for them.  Owns no row (``broker_settings`` and its neighbours), and no bound that
one table alone has.
"""

from __future__ import annotations

from typing import Final

from pybroker.config.schema import BuiltIn, ListOf, NoBound, OneOf, Range, RangeOr

POSITIVE: Final = Range(1)
NATURAL: Final = Range(0)
ANY_LIST: Final = ListOf()
NO_CLASS: Final = BuiltIn()
COMPRESSION_TYPES: Final = OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
LARGEST_ARRAY: Final = 2_147_483_639  # bytes: the longest array that Java allocates everywhere
DECOMPRESSED_BYTES: Final = NoBound(LARGEST_ARRAY, "how large records are once they are decompressed is not bounded")
GZIP_LEVEL: Final = RangeOr(1, 9, -1)
CLEANUP_POLICIES: Final = ListOf("compact", "delete")
TIMESTAMP_TYPES: Final = OneOf("CreateTime", "LogAppendTime")
