"""The wire library, against Kafka's own definitions, a naive interpreter, and other people's encoders."""
