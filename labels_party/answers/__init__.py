"""Charged computations on a sealed batch whose whole result is one signed document."""
