"""Classic groups: JoinGroup, SyncGroup, and the rebalance in which a generation forms."""
