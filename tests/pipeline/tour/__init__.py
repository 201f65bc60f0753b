"""Tests of real input: the tour, its sink into PostgreSQL, and the four uses."""
