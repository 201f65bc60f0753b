"""Streams: what users of Kafka Streams have and Structured Streaming lacks, as functions over DataFrames.

``jobs`` says what a job is, so that one function runs on topics and in the test driver.  ``stream_table_join``,
``table_join`` and ``foreign_key_join`` are joins with tables that change; ``tables`` makes tables of topics.  All else
that Kafka Streams has is Spark's own: docs/pipeline says how it is written.

A *stream* here has a row per record.  A *table* is a stream of changes: each row is the new value of its key, and a
null value deletes the key.
"""
