"""Feature tables, and their join with messages."""
