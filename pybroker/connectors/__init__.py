"""Connectors: declared jobs between topics and other systems, run on Spark and managed as those of Kafka Connect.

Nothing is imported before it is asked for: what reads declarations needs neither Spark nor aiohttp.
"""
