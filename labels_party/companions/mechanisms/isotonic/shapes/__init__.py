"""Shapes of isotonic functions."""
