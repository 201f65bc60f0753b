"""The broker in one deterministic simulation: a real server, simulated clients, and everything else decided by a seed."""
