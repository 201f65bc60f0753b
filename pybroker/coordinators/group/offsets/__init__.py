"""Committed offsets: what OffsetCommit, OffsetFetch, OffsetDelete and transactions do with them."""
