"""Topics as tables: ``format("pybroker")`` for batch and streaming, read and write, in Python alone.

Options and columns have the names of Spark's own Kafka connector.  librdkafka (confluent-kafka) speaks the protocol.
What runs in the driver (``directory``, ``readers``) plans; what runs in tasks (``range_reader``,
``epoch_transactions``) moves records.  Nothing is kept between two calls but open clients.
"""
