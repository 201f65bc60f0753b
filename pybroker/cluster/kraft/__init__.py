"""The metadata of an Apache Kafka node (KRaft), read and taken over."""
