"""Fail-over: how long clients with default settings wait when a broker of a cluster dies, and whether one is given up
that lives."""
