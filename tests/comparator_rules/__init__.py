"""The comparator's own rules, tested without a broker."""
