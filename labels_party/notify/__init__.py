"""Signed webhook notices: queued in the transaction of their event, sent in the background."""
