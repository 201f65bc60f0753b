"""Tests of the proof of exactly-once."""
