"""Signed notices to URLs that the owner named: queued with what they tell of, sent beside it, never in its way."""
