"""Requests to brokers, a subject per file: they take a connected client and print nothing but remarks."""
