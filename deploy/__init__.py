"""Deployment of both services: images, demo, guides, locks, signatures and the standalone verifier."""
