"""What a connector's declaration says, and whether it can be meant.  Pure: no client, no Spark."""
