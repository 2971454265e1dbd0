"""Releases: what is asked for (plan, pure), and how it becomes one signed message (pipeline, engine, worker)."""
