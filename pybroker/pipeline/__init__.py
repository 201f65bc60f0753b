"""The data pipeline: PySpark jobs over topics, talking to the broker by the Kafka protocol alone.

Nothing here imports another part of the broker: a job must run unchanged against any Kafka cluster.
"""
