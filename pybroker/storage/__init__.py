"""The log on the disk, in Kafka's own file format."""
