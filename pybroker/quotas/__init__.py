"""Quotas of clients, enforced: which one holds for whom, and how fast its client is."""
