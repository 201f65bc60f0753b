"""Which brokers live: their sessions, their datagrams, and what holds while a death is in doubt."""
