"""Values of records, read by schemas of Avro and Protobuf into Arrow: what the pipeline and SQL share.  No Spark."""
