"""Cluster links: the sources of topics that are mirrored here, and what the active controller does for them."""
