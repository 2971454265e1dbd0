"""Medians under label differential privacy."""
