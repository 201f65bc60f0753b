"""A broker's place in its cluster: how it enters and leaves, and what it tells the active controller."""
