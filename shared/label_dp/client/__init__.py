"""Clients of our services over HTTP: conversations written once, run blocking or awaited."""
