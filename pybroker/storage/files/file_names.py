"""How the files of a segment are called.  Kafka: LogFileUtils and UnifiedLog."""

from __future__ import annotations

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


def partition_dir_name(topic: str, partition: int) -> str:
    """The name of a partition's directory in its log directory."""
    return f"{topic}-{partition}"


def file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Kafka's name for a segment's file: twenty digits and the suffix."""
    return f"{base_offset:020d}{suffix}"
