"""The engine of containers that builds both images."""
