"""The scenarios, one file per API or family; each talks to one broker and knows nothing of the other."""
