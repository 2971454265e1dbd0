"""Calibrations: asked for, and put behind a model.

The core finds them by name, and works without them.
"""
