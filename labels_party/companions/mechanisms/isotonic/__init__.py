"""Isotonic regression under label differential privacy."""
