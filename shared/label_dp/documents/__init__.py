"""The one privatized message: canonical bytes, signature, manifest, Parquet. Verified before it is parsed."""
