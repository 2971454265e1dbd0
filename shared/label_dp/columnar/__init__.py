"""Parquet files of others: what they claim is checked before a decoder believes it, and rows come in bounded memory."""
