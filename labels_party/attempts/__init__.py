"""Work that was charged, and who of several replicas does it."""
