"""The benchmark's own rules, its load generators, and its loads in small."""
