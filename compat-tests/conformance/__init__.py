"""Stock clients, unmodified, and Kafka's own tools against a broker of any make, by one set of scenarios."""
