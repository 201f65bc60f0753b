"""One log directory of the broker: its lock, its threads, its failure."""
