"""Consumer groups (KIP-848): the broker assigns partitions, and heartbeats carry the members there."""
