"""Fuzzing of what strangers can reach: the decoders of the wire, and the steps of a login."""
