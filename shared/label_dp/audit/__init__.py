"""Hash-chained audit events: their bytes, their table, their signed export. Used by both parties, owned by each."""
