"""What runs, and which supervisor of a name it is that runs it."""
