"""The comparator's rules without a broker, and all of its scenarios against both."""
