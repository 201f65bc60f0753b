"""The rules by which mutants are made, put into a run and judged, tested without a broker."""
