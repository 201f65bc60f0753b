"""pybroker: a broker that speaks the real Kafka protocol over an mmap-backed log."""

__version__ = "0.1.0"
