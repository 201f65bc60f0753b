"""The group coordinator: classic groups and committed offsets, as pure state over ``__consumer_offsets``."""
