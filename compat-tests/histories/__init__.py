"""Histories: a workload that records every operation with its outcome, and a checker that looks for what cannot be."""
