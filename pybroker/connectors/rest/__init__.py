"""Kafka Connect's REST interface, both ends of it."""
