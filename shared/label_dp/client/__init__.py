"""Calling a service of ours over HTTP: conversations written once, run blocking or awaited."""
