"""The broker in one deterministic simulation: a real server, simulated clients, and a seed that decides all else."""
