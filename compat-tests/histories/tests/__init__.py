"""The checker of histories, and the workload that makes them."""
