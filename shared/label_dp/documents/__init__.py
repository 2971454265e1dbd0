"""Signed documents: canonical bytes, signature, manifest, Parquet. Verified before they are parsed."""
