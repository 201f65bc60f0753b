"""Partitions as brokers see them: who leads, how far they are committed, who waits for more."""
