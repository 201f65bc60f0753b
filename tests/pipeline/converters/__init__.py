"""Tests of converters: each kind of value, and what cannot be read."""
