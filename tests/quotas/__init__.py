"""Quotas of clients: rates, precedence, and clients that are held to them."""
