"""Kafka Connect, Debezium and MirrorMaker 2, unmodified, on brokers of ours, as the pages of `docs/` set them up.

Owns the tests that type `docs/connect.md` and `docs/mirrormaker.md`, kill what runs, and count what arrives.
"""
