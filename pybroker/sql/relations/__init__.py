"""Topics as tables: their names and columns, formats and options, and the cluster that has them."""
