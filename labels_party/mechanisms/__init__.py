"""Mechanisms: families of channels from labels to outputs."""
