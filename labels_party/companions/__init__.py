"""Kinds of answers beside the message: calibration, median, rectangle, linear model and prediction.

The core finds them by name, and works without them.
"""
