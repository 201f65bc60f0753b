"""Tests of the measurement of fail-overs."""
