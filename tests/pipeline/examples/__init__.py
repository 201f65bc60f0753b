"""The demos of ``examples/``: the flights, the tour, four uses, and what feeds their topics."""
