"""Clients' own integration tests, as their authors wrote them, aimed at a broker of any make."""
