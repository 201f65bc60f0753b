"""What a supervisor remembers in topics: declarations, target states, statuses, offsets of sources."""
