"""Conversion events in: read, kept as keyed digests until the seal, folded to one label an example."""
