"""Segments and their indexes, and what else lies in a partition's directory: bytes, names, no rule."""
