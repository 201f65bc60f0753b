"""Tests of streams: what is Spark's runs in the test driver, or beside Kafka Streams."""
