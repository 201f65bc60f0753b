"""Stock clients and Kafka's own tools against pybroker, unmodified."""
