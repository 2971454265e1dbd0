"""Hash-chained audit events of both parties: their bytes, their table, their signed export."""
