"""Untrusted Parquet files: their claims are checked before a decoder believes them, and rows are read in bounded
memory."""
