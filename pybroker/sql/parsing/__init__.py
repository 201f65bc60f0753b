"""From a text to a statement, and what a query's tree says of topics, columns and restrictions.  Pure."""
