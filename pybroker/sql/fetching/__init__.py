"""From record batches to Arrow: what is fetched, the walk over it, and its values as columns."""
