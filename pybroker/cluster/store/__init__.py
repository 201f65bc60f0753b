"""Where the metadata is kept: the port to a store, the form of its keys and values, and the image that follows it."""
