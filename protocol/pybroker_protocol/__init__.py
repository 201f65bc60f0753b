"""The Kafka wire protocol as a library: pure, no I/O, no clock, no event loop."""
