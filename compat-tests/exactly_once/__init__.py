"""Exactly once into topics: a job from topic to topic on a cluster of Spark, while executors, driver and broker die."""
