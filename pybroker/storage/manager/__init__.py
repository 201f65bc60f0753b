"""All logs of a broker: where they lie, and their housekeeping."""
