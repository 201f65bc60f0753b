"""What is asked of a cluster of three brokers: a module per subject, each of whose functions is a scenario."""
