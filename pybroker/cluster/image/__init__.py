"""The cluster as values: the immutable image that all read, what changed in it, and the tables that name its parts."""
