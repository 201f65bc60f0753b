"""The store in a SQLite file: a broker's own, or one that the brokers of a machine share."""
