"""The store of brokers on several machines: Apache ZooKeeper."""
