"""Features party: receives private messages, joins them with its features and trains models."""
